"""Detection: suppression, and what decodes boxes."""

from __future__ import annotations

import numpy as np

from ..case import C, Case, Random, case


def suppression(r: Random) -> list[Case]:
    boxes = r.boxes(2, 12)
    scores = (r.distinct(2, 3, 12) + 9) / 20
    limits = [C(5), C(np.float32(0.4)), C(np.float32(0.3))]
    found = []
    for encoding in ("corner", "center"):
        given = boxes
        if encoding == "center":
            size = boxes[..., 2:] - boxes[..., :2]
            given = np.concatenate([boxes[..., :2] + size / 2, size], -1)
        for descending in (True, False):
            name = f"{encoding}-{descending}"
            common = {"box_encoding": encoding, "sort_result_descending": descending}
            found += [
                case(
                    "NonMaxSuppression",
                    9,
                    given,
                    scores,
                    *limits,
                    outputs=3,
                    variant=name,
                    output_type="i64",
                    **common,
                ),
                case(
                    "NonMaxSuppression",
                    5,
                    given,
                    scores,
                    *limits,
                    C(np.float32(0)),
                    outputs=3,
                    variant=name,
                    output_type="i32",
                    **common,
                ),
            ]
    found.append(
        case(
            "NonMaxSuppression",
            9,
            boxes,
            scores,
            *limits,
            C(np.float32(0.5)),
            outputs=3,
            variant="soft",
            box_encoding="corner",
            sort_result_descending=True,
            output_type="i64",
        )
    )
    # As many places as all three versions reserve.
    for opset in (1, 3, 4):
        extra = {} if opset == 1 else {"output_type": "i32"}
        found.append(
            case(
                "NonMaxSuppression",
                opset,
                boxes[:1],
                scores[:1],
                C(4),
                *limits[1:],
                box_encoding="corner",
                sort_result_descending=True,
                **extra,
            )
        )
    rotated = np.concatenate([r.boxes(1, 8, size=9), r.f(1, 8, 1)], -1)
    for clockwise in (True, False):
        found.append(
            case(
                "NMSRotated",
                13,
                rotated,
                (r.distinct(1, 2, 8) + 3) / 8,
                *limits,
                outputs=3,
                variant=str(clockwise),
                clockwise=clockwise,
                sort_result_descending=True,
                output_type="i64",
            )
        )
    for sort in ("classid", "score", "none"):
        for across in (True, False):
            common = {
                "sort_result_type": sort,
                "sort_result_across_batch": across,
                "output_type": "i64",
                "score_threshold": 0.2,
                "nms_top_k": 6,
                "keep_top_k": 7,
                "background_class": 0,
                "normalized": True,
            }
            found.append(
                case(
                    "MulticlassNms",
                    8,
                    boxes,
                    scores,
                    outputs=3,
                    variant=f"{sort}-{across}",
                    iou_threshold=0.4,
                    nms_eta=1.0,
                    **common,
                )
            )
            for decay in ("linear", "gaussian"):
                # OpenVINO's CPU plugin sorts these by score; there is no reference.
                if (sort, across) != ("classid", False):
                    found.append(
                        case(
                            "MatrixNms",
                            8,
                            boxes,
                            scores,
                            outputs=3,
                            variant=f"{sort}-{across}-{decay}",
                            decay_function=decay,
                            gaussian_sigma=2.0,
                            post_threshold=0.1,
                            **common,
                        )
                    )
    found.append(
        case(
            "MulticlassNms",
            9,
            r.boxes(3, 9),
            (r.distinct(3, 9) + 4) / 9,
            np.int64([5, 4]),
            outputs=3,
            variant="9-counts",
            sort_result_type="score",
            sort_result_across_batch=False,
            output_type="i64",
            iou_threshold=0.4,
            score_threshold=0.2,
            nms_top_k=-1,
            keep_top_k=-1,
            background_class=-1,
            nms_eta=1.0,
            normalized=True,
        )
    )
    return found


def decoders(r: Random) -> list[Case]:
    classes, count = 3, 8
    confidences = r.f(2, count * classes, low=0, high=1)
    boxes = r.boxes(count).reshape(1, 1, -1)
    variances = np.tile(np.float32([0.1, 0.1, 0.2, 0.2]), count).reshape(1, 1, -1)
    priors = np.concatenate([boxes, variances], 1)
    common = {
        "background_label_id": 0,
        "top_k": 6,
        "keep_top_k": 5,
        "nms_threshold": 0.4,
        "confidence_threshold": 0.2,
        "normalized": True,
        "input_height": 1,
        "input_width": 1,
        "objectness_score": 0.0,
        "clip_after_nms": False,
        "clip_before_nms": False,
        "decrease_label_id": False,
    }
    found = []
    for code in ("caffe.PriorBoxParameter.CORNER", "caffe.PriorBoxParameter.CENTER_SIZE"):
        for share in (True, False):
            locations = r.f(2, count * 4 * (1 if share else classes), low=-0.5, high=0.5)
            for opset in (1, 8):
                extra = {"num_classes": classes} if opset == 1 else {}
                found.append(
                    case(
                        "DetectionOutput",
                        opset,
                        locations,
                        confidences,
                        priors,
                        variant=f"{code.rpartition('.')[2]}-{share}",
                        code_type=code,
                        share_location=share,
                        variance_encoded_in_target=False,
                        **extra,
                        **common,
                    )
                )
    found.append(
        case(
            "DetectionOutput",
            8,
            r.f(2, count * 4, low=-0.1, high=0.1),
            confidences,
            boxes,
            variant="encoded",
            code_type="caffe.PriorBoxParameter.CENTER_SIZE",
            share_location=True,
            variance_encoded_in_target=True,
            **{**common, "clip_after_nms": True},
        )
    )
    shape = C(np.float32([60, 80, 1]))
    for opset, outputs in ((1, 1), (4, 2)):
        for framework in ("", "tensorflow"):
            found.append(
                case(
                    "Proposal",
                    opset,
                    r.distinct(1, 12, 4, 5) / 99,
                    r.f(1, 24, 4, 5, low=-0.3, high=0.3),
                    shape,
                    outputs=outputs,
                    variant=f"{opset}-{framework}",
                    base_size=16,
                    pre_nms_topn=60,
                    post_nms_topn=10,
                    nms_thresh=0.6,
                    feat_stride=16,
                    min_size=4,
                    ratio=(0.5, 1.0),
                    scale=(1.0, 2.0, 3.0),
                    framework=framework,
                    clip_before_nms=True,
                    clip_after_nms=False,
                    normalize=False,
                    box_size_scale=1.0,
                    box_coordinate_scale=1.0,
                )
            )
    grid = (r.boxes(3, 4, 2, size=40)).astype(np.float32)
    found.append(
        case(
            "GenerateProposals",
            9,
            np.float32([[60, 80, 1]]),
            grid,
            r.f(1, 8, 3, 4, low=-0.3, high=0.3),
            (r.distinct(1, 2, 3, 4) + 3) / 8,
            outputs=3,
            min_size=3.0,
            nms_threshold=0.6,
            pre_nms_count=20,
            post_nms_count=9,
            normalized=True,
            nms_eta=1.0,
            roi_num_type="i64",
        )
    )
    image, anchors = np.float32([60, 80, 1]), grid.reshape(-1, 4)
    offsets, scores = r.f(8, 3, 4, low=-0.3, high=0.3), (r.distinct(2, 3, 4) + 3) / 8
    found.append(
        case(
            "ExperimentalDetectronGenerateProposalsSingleImage",
            6,
            image,
            anchors,
            offsets,
            scores,
            others=[image, anchors, -offsets, scores[:, ::-1]],
            outputs=2,
            min_size=3.0,
            nms_threshold=0.6,
            pre_nms_count=20,
            post_nms_count=9,
        )
    )
    rois = r.boxes(9, size=60)
    found.append(
        case(
            "ExperimentalDetectronDetectionOutput",
            6,
            rois,
            r.f(9, 12, low=-1, high=1),
            (r.distinct(9, 3) + 4) / 8,
            np.float32([[60, 80, 1]]),
            outputs=3,
            score_threshold=0.2,
            nms_threshold=0.5,
            max_delta_log_wh=4.0,
            num_classes=3,
            post_nms_count=8,
            max_detections_per_image=6,
            deltas_weights=(10.0, 10.0, 5.0, 5.0),
            class_agnostic_box_regression=False,
        )
    )
    found.append(case("ExperimentalDetectronTopKROIs", 6, rois, r.distinct(9), max_rois=5))
    return found


def cases() -> list[Case]:
    r = Random("detection")
    return [*suppression(r), *decoders(r)]
