"""Convolutions of every kind, matrix products, pooling."""

from __future__ import annotations

import numpy as np

from ..case import C, Case, Random, case

PADS = ("explicit", "same_upper", "same_lower", "valid")


def window(rank: int, stride: int = 1, dilation: int = 1, begin: int = 0, end: int = 0) -> dict:
    """Attributes of a window with the same numbers along every axis."""
    return {
        "strides": [stride] * rank,
        "dilations": [dilation] * rank,
        "pads_begin": [begin] * rank,
        "pads_end": [end] * rank,
    }


def convolutions(r: Random) -> list[Case]:
    x, w = r.f(2, 3, 9, 11), C(r.f(5, 3, 3, 2))
    found = [
        case(
            "Convolution", 1, r.f(1, 3, 13), C(r.f(4, 3, 3)), variant="1d", **window(1, 2, 1, 1, 0)
        ),
        case(
            "Convolution",
            1,
            r.f(1, 2, 5, 6, 7),
            C(r.f(3, 2, 2, 3, 1)),
            variant="3d",
            **window(3, 1, 1, 1, 1),
        ),
        case("Convolution", 1, x, C(r.f(5, 3, 1, 1)), variant="1x1", **window(2)),
        case(
            "Convolution", 1, x, r.f(4, 3, 3, 3), variant="weights given", **window(2, 1, 1, 1, 1)
        ),
        case(
            "Convolution",
            1,
            x,
            w,
            variant="uneven",
            strides=(1, 3),
            dilations=(2, 1),
            pads_begin=(2, 0),
            pads_end=(0, 1),
            auto_pad="explicit",
        ),
    ]
    for pad in PADS:
        found.append(
            case("Convolution", 1, x, w, variant=pad, auto_pad=pad, **window(2, 2, 2, 1, 1))
        )
    grouped = C(r.f(2, 3, 2, 3, 3))
    found += [
        case("GroupConvolution", 1, r.f(2, 4, 7, 9), grouped, **window(2, 1, 1, 1, 1)),
        case(
            "GroupConvolution",
            1,
            r.f(1, 6, 8, 9),
            C(r.f(6, 1, 1, 3, 3)),
            variant="depthwise",
            **window(2, 2, 1, 1, 1),
        ),
        case(
            "GroupConvolution",
            1,
            r.f(1, 6, 8, 9),
            C(r.f(6, 2, 1, 5, 5)),
            variant="multiplier",
            auto_pad="same_upper",
            **window(2, 1),
        ),
        case(
            "GroupConvolution", 1, r.f(1, 4, 15), C(r.f(2, 3, 2, 3)), variant="1d", **window(1, 2)
        ),
    ]
    return found


def backprop(r: Random) -> list[Case]:
    kind = "ConvolutionBackpropData"
    x, w = r.f(1, 4, 5, 6), C(r.f(4, 3, 3, 3))
    found = [
        case(kind, 1, x, w, **window(2, 2)),
        case(kind, 1, x, w, variant="padded", output_padding=(1, 1), **window(2, 2, 1, 1, 1)),
        case(kind, 1, x, w, variant="dilated", **window(2, 1, 2, 1, 0)),
        case(kind, 1, r.f(2, 3, 7), C(r.f(3, 2, 4)), variant="1d", **window(1, 3)),
        case(kind, 1, r.f(1, 2, 3, 4, 3), C(r.f(2, 3, 2, 2, 2)), variant="3d", **window(3, 2)),
    ]
    for pad in PADS:
        found.append(
            case(
                kind,
                1,
                x,
                w,
                C([10, 12] if pad != "valid" else [11, 13]),
                variant=f"sized-{pad}",
                auto_pad=pad,
                **window(2, 2),
            )
        )
    kind = "GroupConvolutionBackpropData"
    found += [
        case(kind, 1, x, C(r.f(2, 2, 3, 3, 3)), **window(2, 2, 1, 1, 1)),
        case(kind, 1, x, C(r.f(4, 1, 1, 4, 4)), variant="depthwise", **window(2, 2, 1, 1, 1)),
        case(
            kind,
            1,
            x,
            C(r.f(2, 2, 3, 3, 3)),
            C([10, 12]),
            variant="sized",
            auto_pad="same_upper",
            **window(2, 2),
        ),
    ]
    return found


def other(r: Random) -> list[Case]:
    x, w = r.f(1, 4, 6, 7), C(r.f(3, 4, 3, 3))
    offsets = r.f(1, 18, 6, 7, low=-1, high=1)
    # Channels that fill bytes; OpenVINO's CPU plugin takes no others.
    signs = np.where(r.b(1, 16, 6, 6), 1, -1).astype(np.float32)
    bits = C(r.i(8, 16, 3, 3, low=0, high=2, dtype=np.uint8), kind="u1")
    found = [
        case(
            "BinaryConvolution",
            1,
            signs,
            bits,
            mode="xnor-popcount",
            pad_value=1.0,
            **window(2, 1, 1, 1, 1),
        ),
        case(
            "DeformableConvolution",
            1,
            x,
            offsets,
            w,
            group=1,
            deformable_group=1,
            **window(2, 1, 1, 1, 1),
        ),
        case(
            "DeformableConvolution",
            1,
            x,
            r.f(1, 36, 6, 7, low=-1, high=1),
            C(r.f(2, 2, 3, 3)),
            variant="groups",
            group=2,
            deformable_group=2,
            **window(2, 1, 1, 1, 1),
        ),
    ]
    for pad in (False, True):
        found.append(
            case(
                "DeformableConvolution",
                8,
                x,
                offsets,
                w,
                r.f(1, 9, 6, 7, low=0, high=1),
                variant=f"8-{pad}",
                bilinear_interpolation_pad=pad,
                group=1,
                deformable_group=1,
                **window(2, 1, 1, 1, 1),
            )
        )
    return found


def products(r: Random) -> list[Case]:
    found = []
    for a, b in (("nn", "n"), ("t", "n"), ("n", "t"), ("t", "t")):
        ta, tb = a == "t", b == "t"
        left = r.f(2, 5, 3) if ta else r.f(2, 3, 5)
        right = r.f(4, 5) if tb else r.f(5, 4)
        for constant in (False, True):
            found.append(
                case(
                    "MatMul",
                    1,
                    left,
                    C(right) if constant else right,
                    variant=f"{a}{b}-{constant}",
                    transpose_a=ta,
                    transpose_b=tb,
                )
            )
    found += [
        case("MatMul", 1, r.f(3, 1, 2, 5), r.f(4, 5, 7), variant="batch"),
        case("MatMul", 1, r.f(5), r.f(5), variant="vectors"),
        case("MatMul", 1, r.f(5), r.f(2, 5, 3), variant="vector-matrix"),
        case("MatMul", 1, r.f(2, 3, 5), r.f(5), variant="matrix-vector"),
        case("MatMul", 1, r.f(1, 64), C(r.f(64, 33)), variant="row"),
        case("Einsum", 7, r.f(2, 3, 4), r.f(2, 4, 5), equation="bij,bjk->bik"),
        case("Einsum", 7, r.f(3, 4), variant="transpose", equation="ij->ji"),
        case("Einsum", 7, r.f(2, 3, 4), variant="sum", equation="abc->b"),
        case("Einsum", 7, r.f(3, 3), variant="diagonal", equation="ii->i"),
        case("Einsum", 7, r.f(2, 3, 4), r.f(4), variant="implicit", equation="abc,c"),
        case(
            "Einsum", 7, r.f(2, 3, 4), r.f(4, 3), r.f(2), variant="three", equation="abc,cb,a->cb"
        ),
        case(
            "Einsum",
            7,
            r.f(2, 5, 3, 4),
            r.f(5, 4, 6),
            variant="dots",
            equation="a...bc,...cd->a...bd",
        ),
    ]
    return found


def pooling(r: Random) -> list[Case]:
    x = r.f(2, 3, 9, 11)
    found = []
    for pad in PADS:
        for rounding in ("floor", "ceil"):
            shape = {
                "kernel": (3, 2),
                "strides": (2, 2),
                "pads_begin": (1, 0),
                "pads_end": (0, 1),
                "auto_pad": pad,
                "rounding_type": rounding,
            }
            name = f"{pad}-{rounding}"
            found.append(case("MaxPool", 1, x, variant=name, **shape))
            found.append(
                case(
                    "MaxPool",
                    8,
                    x,
                    outputs=2,
                    variant=f"8-{name}",
                    dilations=(1, 1),
                    index_element_type="i64",
                    axis=0,
                    **shape,
                )
            )
            for exclude in (True, False):
                found.append(
                    case("AvgPool", 1, x, variant=f"{name}-{exclude}", exclude_pad=exclude, **shape)
                )
    shape = {"kernel": (2, 3), "strides": (2, 2), "pads_begin": (1, 1), "pads_end": (1, 1)}
    found += [
        case(
            "MaxPool", 1, r.f(1, 2, 13), variant="1d", kernel=3, strides=2, pads_begin=1, pads_end=1
        ),
        case(
            "MaxPool",
            1,
            r.f(1, 2, 5, 6, 7),
            variant="3d",
            kernel=(2, 2, 3),
            strides=(2, 1, 2),
            pads_begin=(0, 1, 0),
            pads_end=(0, 0, 1),
        ),
        case(
            "AvgPool",
            1,
            r.f(1, 2, 5, 6, 7),
            variant="3d",
            kernel=(2, 2, 3),
            strides=(2, 1, 2),
            pads_begin=(0, 1, 0),
            pads_end=(0, 0, 1),
            exclude_pad=True,
        ),
        case(
            "MaxPool",
            8,
            x,
            outputs=2,
            variant="8-dilated",
            dilations=(2, 3),
            index_element_type="i32",
            axis=2,
            **shape,
        ),
        case(
            "MaxPool",
            14,
            x,
            outputs=2,
            variant="14-torch",
            dilations=(1, 1),
            axis=0,
            index_element_type="i64",
            rounding_type="ceil_torch",
            **shape,
        ),
        case(
            "AvgPool",
            14,
            x,
            variant="14-torch",
            exclude_pad=False,
            rounding_type="ceil_torch",
            **shape,
        ),
        case(
            "AvgPool",
            16,
            x,
            variant="16-dilated",
            exclude_pad=True,
            rounding_type="floor",
            dilations=(2, 2),
            **shape,
        ),
        case("AdaptiveAvgPool", 8, r.f(2, 3, 7, 10), C([3, 4])),
        case("AdaptiveAvgPool", 8, r.f(2, 3, 7), C([3]), variant="1d"),
        case("AdaptiveAvgPool", 8, r.f(1, 2, 5, 6, 7), C([2, 3, 4]), variant="3d"),
        case(
            "AdaptiveMaxPool", 8, r.f(2, 3, 7, 10), C([3, 4]), outputs=2, index_element_type="i32"
        ),
        case(
            "AdaptiveMaxPool",
            8,
            r.f(2, 3, 7),
            C([3]),
            outputs=2,
            variant="1d",
            index_element_type="i32",
        ),
    ]
    return found


def cases() -> list[Case]:
    r = Random("convolution")
    return [*convolutions(r), *backprop(r), *other(r), *products(r), *pooling(r)]
