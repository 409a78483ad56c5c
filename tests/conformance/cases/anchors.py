"""Anchors: prior boxes, proposals and what is chosen among them."""

from __future__ import annotations

import numpy as np

from ..case import C, Case, Random, case


def anchors(r: Random) -> list[Case]:
    sizes = [C([3, 4]), C([60, 80])]
    common = {
        "clip": False,
        "flip": True,
        "step": 16.0,
        "offset": 0.5,
        "variance": (0.1, 0.1, 0.2, 0.2),
        "density": (),
        "fixed_ratio": (),
        "fixed_size": (),
    }
    found = []
    # For the other combinations OpenVINO reserves fewer boxes than it writes.
    for all_sizes, largest in ((True, (15.0, 30.0)), (False, ())):
        found.append(
            case(
                "PriorBox",
                1,
                *sizes,
                variant=str(all_sizes),
                min_size=(10.0, 20.0),
                max_size=largest,
                aspect_ratio=(2.0, 3.0),
                scale_all_sizes=all_sizes,
                **common,
            )
        )
    for order in (True, False):
        found.append(
            case(
                "PriorBox",
                8,
                *sizes,
                variant=f"8-{order}",
                min_size=(10.0,),
                max_size=(15.0,),
                aspect_ratio=(2.0,),
                scale_all_sizes=True,
                min_max_aspect_ratios_order=order,
                **common,
            )
        )
    found += [
        case(
            "PriorBox",
            1,
            *sizes,
            variant="dense",
            min_size=(),
            max_size=(),
            aspect_ratio=(),
            scale_all_sizes=True,
            **{
                **common,
                "density": (2.0,),
                "fixed_size": (16.0,),
                "fixed_ratio": (2.0,),
                "flip": False,
            },
        ),
        case(
            "PriorBox",
            1,
            *sizes,
            variant="clip",
            min_size=(40.0,),
            max_size=(),
            step=0.0,
            aspect_ratio=(1.0, 2.0),
            scale_all_sizes=True,
            **{k: v for k, v in {**common, "clip": True}.items() if k != "step"},
        ),
        case(
            "PriorBoxClustered",
            1,
            *sizes,
            width=(10.0, 20.0),
            height=(12.0, 9.0),
            clip=True,
            step_w=16.0,
            step_h=18.0,
            step=0.0,
            offset=0.5,
            variance=(0.1, 0.1, 0.2, 0.2),
        ),
        case(
            "PriorBoxClustered",
            1,
            *sizes,
            variant="no step",
            width=(10.0,),
            height=(12.0,),
            clip=False,
            step_w=0.0,
            step_h=0.0,
            step=0.0,
            offset=0.5,
            variance=(0.1,),
        ),
    ]
    priors = (r.boxes(2, size=20) - 10).astype(np.float32)
    for flatten in (True, False):
        found.append(
            case(
                "ExperimentalDetectronPriorGridGenerator",
                6,
                priors,
                r.f(1, 3, 4, 5),
                r.f(1, 3, 40, 50),
                variant=str(flatten),
                flatten=flatten,
                h=0,
                w=0,
                stride_x=0.0,
                stride_y=0.0,
            )
        )
    return found


def cases() -> list[Case]:
    r = Random("anchors")
    return [*anchors(r)]
