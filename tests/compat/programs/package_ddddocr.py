"""Letters and boxes in a picture, by ddddocr."""

import json

import cv2
import ddddocr
import numpy as np

picture = np.full((64, 200, 3), 255, np.uint8)
cv2.putText(picture, "3n7K", (20, 48), cv2.FONT_HERSHEY_SIMPLEX, 1.6, (0, 0, 0), 4)
data = cv2.imencode(".png", picture)[1].tobytes()
text = ddddocr.DdddOcr(show_ad=False).classification(data)
boxes = ddddocr.DdddOcr(det=True, ocr=False, show_ad=False).detection(data)
print(json.dumps([text, boxes]))
