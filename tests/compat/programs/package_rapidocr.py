"""Text in a picture, by rapidocr: three networks of changing sizes."""

import json

import cv2
import numpy as np
from rapidocr_onnxruntime import RapidOCR

picture = np.full((200, 640, 3), 255, np.uint8)
for row, text in enumerate(["Programs run unchanged", "on every device 2026"]):
    cv2.putText(picture, text, (20, 70 + 80 * row), cv2.FONT_HERSHEY_SIMPLEX, 1.4, (0, 0, 0), 3)
found, _ = RapidOCR()(picture)
print(json.dumps([[np.asarray(box).tolist(), text, float(score)] for box, text, score in found]))
