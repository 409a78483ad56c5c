"""A cat in a photograph, by openvino-model-api: preprocessing in the model, a queue of requests."""

import json
import sys
from pathlib import Path

import numpy as np
import openvino
from model_api.adapters import OpenvinoAdapter
from model_api.models import ClassificationModel
from PIL import Image

folder = Path(sys.argv[1])
model = folder / "models/efficientnet_lite0/efficientnet_lite0.xml"
photo = np.asarray(Image.open(folder / "images/cat.jpg").convert("RGB"))[:, :, ::-1]
core = openvino.Core()
core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32"})
found = []
for resize in ("standard", "fit_to_window_letterbox"):
    adapter = OpenvinoAdapter(core, str(model), device="CPU")
    adapter.model.reshape([1, 3, 224, 224])
    options = {
        "labels": [str(i) for i in range(1000)],
        "topk": 3,
        "resize_type": resize,
        "mean_values": [127.0, 127.0, 127.0],
        "scale_values": [128.0, 128.0, 128.0],
        "reverse_input_channels": True,
    }
    classifier = ClassificationModel(adapter, options, preload=True)
    result = classifier(photo)
    found.append([[int(label.id), float(label.confidence)] for label in result.top_labels])
    queued = {}
    classifier.set_callback(lambda answer, number, kept=queued: kept.update({number: answer}))
    for number in range(4):
        classifier.infer_async(np.roll(photo, number, 0), number)
    classifier.await_all()
    found += [[int(label.id) for label in queued[number].top_labels] for number in range(4)]
print(json.dumps(found))
