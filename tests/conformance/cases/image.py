"""Resampling and colour conversion."""

from __future__ import annotations

import numpy as np

from ..case import C, Case, Random, case

COORDINATES = (
    "half_pixel",
    "pytorch_half_pixel",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "align_corners",
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")


def interpolation(r: Random) -> list[Case]:
    x = r.f(1, 2, 5, 6)
    found = []
    for opset in (4, 11):

        def arguments(height: int, width: int, opset: int = opset) -> list:
            scales = C(np.float32([height / 5, width / 6]))
            if opset == 4:
                return [C([height, width]), scales, C([2, 3])]
            return [C([height, width]), C([2, 3])]

        common = {"shape_calculation_mode": "sizes", "tolerance": "image"}
        for coordinates in COORDINATES:
            for mode in ("nearest", "linear", "linear_onnx", "cubic"):
                for height, width in ((8, 9), (3, 4)):
                    found.append(
                        case(
                            "Interpolate",
                            opset,
                            x,
                            *arguments(height, width),
                            variant=f"{mode}-{coordinates}-{height}",
                            mode=mode,
                            coordinate_transformation_mode=coordinates,
                            nearest_mode="round_prefer_floor",
                            antialias=False,
                            pads_begin=(0, 0, 0, 0),
                            pads_end=(0, 0, 0, 0),
                            cube_coeff=-0.75,
                            **common,
                        )
                    )
        for nearest in NEAREST:
            found.append(
                case(
                    "Interpolate",
                    opset,
                    x,
                    *arguments(8, 9),
                    variant=f"nearest-{nearest}",
                    mode="nearest",
                    nearest_mode=nearest,
                    coordinate_transformation_mode="asymmetric",
                    antialias=False,
                    pads_begin=(0, 0, 0, 0),
                    pads_end=(0, 0, 0, 0),
                    **common,
                )
            )
        # OpenVINO's CPU plugin ignores the attribute; its reference does not.
        found.append(
            case(
                "Interpolate",
                opset,
                x,
                *arguments(3, 4),
                variant="antialias",
                mode="linear",
                coordinate_transformation_mode="half_pixel",
                nearest_mode="round_prefer_floor",
                antialias=True,
                pads_begin=(0, 0, 0, 0),
                pads_end=(0, 0, 0, 0),
                reference=True,
                **common,
            )
        )
    for mode in ("bilinear_pillow", "bicubic_pillow"):
        for height, width in ((8, 9), (3, 4)):
            found.append(
                case(
                    "Interpolate",
                    11,
                    x,
                    C([height, width]),
                    C([2, 3]),
                    variant=f"{mode}-{height}",
                    mode=mode,
                    antialias=False,
                    shape_calculation_mode="sizes",
                    cube_coeff=-0.5,
                    coordinate_transformation_mode="half_pixel",
                    tolerance="image",
                    nearest_mode="round_prefer_floor",
                    pads_begin=(0,),
                    pads_end=(0,),
                )
            )
    found.append(
        case(
            "Interpolate",
            4,
            x,
            C([1, 1]),
            C(np.float32([1.6, 2.5])),
            C([2, 3]),
            variant="scales",
            mode="linear_onnx",
            shape_calculation_mode="scales",
            coordinate_transformation_mode="half_pixel",
            nearest_mode="floor",
            antialias=False,
            pads_begin=(0, 0, 0, 0),
            pads_end=(0, 0, 0, 0),
            tolerance="image",
        )
    )
    found.append(
        case(
            "Interpolate",
            4,
            x,
            C([9, 10]),
            C(np.float32([1, 1])),
            C([2, 3]),
            variant="padded",
            mode="nearest",
            shape_calculation_mode="sizes",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
            antialias=False,
            pads_begin=(0, 0, 1, 0),
            pads_end=(0, 0, 0, 1),
            tolerance="image",
        )
    )
    for mode in ("nearest", "linear"):
        found.append(
            case(
                "Interpolate",
                1,
                x,
                C([9, 11]),
                variant=f"1-{mode}",
                axes=(2, 3),
                mode=mode,
                align_corners=mode == "linear",
                antialias=False,
                pads_begin=0,
                pads_end=0,
                tolerance="image",
            )
        )
    return found


def sampling(r: Random) -> list[Case]:
    x = r.f(2, 3, 5, 6)
    grid = r.f(2, 4, 7, 2, low=-1.3, high=1.3)
    found = []
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for align in (True, False):
                found.append(
                    case(
                        "GridSample",
                        9,
                        x,
                        grid,
                        variant=f"{mode}-{padding}-{align}",
                        mode=mode,
                        padding_mode=padding,
                        align_corners=align,
                        tolerance="image",
                    )
                )
    return found


def colours(r: Random) -> list[Case]:
    def plane(height: int, width: int, channels: int) -> np.ndarray:
        return r.i(1, height, width, channels, low=0, high=256, dtype=np.uint8)

    found = []
    for target in ("RGB", "BGR"):
        luma = plane(6, 8, 1).astype(np.float32)
        both, one, two = (plane(3, 4, n).astype(np.float32) for n in (2, 1, 1))
        found += [
            case(f"NV12to{target}", 8, luma, both, variant="planes", tolerance="image"),
            case(
                f"NV12to{target}",
                8,
                plane(9, 8, 1).astype(np.float32),
                variant="one",
                tolerance="image",
            ),
            case(f"I420to{target}", 8, luma, one, two, variant="planes", tolerance="image"),
            case(
                f"I420to{target}",
                8,
                plane(9, 8, 1).astype(np.float32),
                variant="one",
                tolerance="image",
            ),
        ]
    return found


def cases() -> list[Case]:
    r = Random("image")
    return [*interpolation(r), *sampling(r), *colours(r)]
