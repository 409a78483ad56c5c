"""Regions of interest, and YOLO's regions."""

from __future__ import annotations

import numpy as np

from ..case import C, Case, Random, case


def regions(r: Random) -> list[Case]:
    x = r.f(2, 3, 12, 14)
    rois = np.concatenate([np.float32([[0], [1], [1]]), r.boxes(3, size=12)], -1)
    found = []
    for method in ("max", "bilinear"):
        scaled = rois if method == "max" else np.concatenate([rois[:, :1], r.boxes(3)], -1)
        found.append(
            case(
                "ROIPooling",
                2,
                x,
                scaled,
                variant=method,
                pooled_h=3,
                pooled_w=2,
                spatial_scale=1.0 if method == "bilinear" else 0.9,
                method=method,
                tolerance="image",
            )
        )
    found += [
        case(
            "PSROIPooling",
            1,
            r.f(2, 12, 9, 10),
            rois,
            output_dim=3,
            group_size=2,
            spatial_scale=0.7,
            mode="average",
            spatial_bins_x=1,
            spatial_bins_y=1,
            tolerance="image",
        ),
        case(
            "PSROIPooling",
            1,
            r.f(2, 12, 9, 10),
            np.concatenate([rois[:, :1], r.boxes(3)], -1),
            variant="bilinear",
            output_dim=2,
            group_size=2,
            spatial_scale=1.0,
            mode="bilinear",
            spatial_bins_x=3,
            spatial_bins_y=2,
            tolerance="image",
        ),
        case(
            "DeformablePSROIPooling",
            1,
            r.f(2, 12, 9, 10),
            rois,
            output_dim=3,
            group_size=2,
            spatial_scale=0.7,
            mode="bilinear_deformable",
            spatial_bins_x=2,
            spatial_bins_y=2,
            trans_std=0.1,
            part_size=2,
            tolerance="image",
        ),
        case(
            "DeformablePSROIPooling",
            1,
            r.f(2, 12, 9, 10),
            rois,
            r.f(3, 2, 2, 2),
            variant="offsets",
            output_dim=3,
            group_size=2,
            spatial_scale=0.7,
            mode="bilinear_deformable",
            spatial_bins_x=2,
            spatial_bins_y=2,
            trans_std=0.1,
            part_size=2,
            tolerance="image",
        ),
    ]
    batches = C(np.int32([0, 1, 1]))
    for mode in ("avg", "max"):
        for aligned in ("asymmetric", "half_pixel_for_nn", "half_pixel"):
            for ratio in (0, 2):
                found.append(
                    case(
                        "ROIAlign",
                        9,
                        x,
                        rois[:, 1:],
                        batches,
                        variant=f"{mode}-{aligned}-{ratio}",
                        pooled_h=3,
                        pooled_w=2,
                        sampling_ratio=ratio,
                        spatial_scale=0.8,
                        mode=mode,
                        aligned_mode=aligned,
                        tolerance="image",
                    )
                )
        found.append(
            case(
                "ROIAlign",
                3,
                x,
                rois[:, 1:],
                batches,
                variant=f"3-{mode}",
                pooled_h=3,
                pooled_w=2,
                sampling_ratio=2,
                spatial_scale=0.8,
                mode=mode,
                tolerance="image",
            )
        )
    centred = np.concatenate([rois[:, 1:] + 1, r.f(3, 1, low=-1, high=1)], -1)
    for clockwise in (True, False):
        found.append(
            case(
                "ROIAlignRotated",
                15,
                x,
                centred,
                batches,
                variant=str(clockwise),
                pooled_h=3,
                pooled_w=2,
                sampling_ratio=2,
                spatial_scale=0.8,
                clockwise_mode=clockwise,
                tolerance="image",
            )
        )
    found.append(
        case(
            "ExperimentalDetectronROIFeatureExtractor",
            6,
            rois[:, 1:],
            r.f(1, 3, 16, 20),
            r.f(1, 3, 8, 10),
            outputs=2,
            output_size=3,
            sampling_ratio=2,
            pyramid_scales=(4, 8),
            aligned=False,
            tolerance="image",
        )
    )
    return found


def yolo(r: Random) -> list[Case]:
    anchors = (10.0, 14.0, 23.0, 27.0, 37.0, 58.0)
    common = {"coords": 4, "classes": 3, "num": 3, "anchors": anchors}
    return [
        case(
            "RegionYolo",
            1,
            r.f(1, 24, 3, 4),
            do_softmax=True,
            axis=1,
            end_axis=3,
            mask=(),
            tolerance="transcendental",
            **common,
        ),
        case(
            "RegionYolo",
            1,
            r.f(2, 16, 3, 4),
            variant="masked",
            do_softmax=False,
            axis=1,
            end_axis=3,
            mask=(0, 2),
            tolerance="transcendental",
            **common,
        ),
        case("ReorgYolo", 2, r.f(2, 8, 4, 6), stride=2),
    ]


def cases() -> list[Case]:
    r = Random("region")
    return [*regions(r), *yolo(r)]
