"""A face in a photograph, by mtcnn-runtime: three networks of changing sizes."""

import json

import numpy as np
from mtcnnruntime import MTCNN
from skimage import data

boxes, landmarks = MTCNN().detect(data.astronaut())
print(json.dumps([np.asarray(boxes).tolist(), np.asarray(landmarks).tolist()]))
