"""Operations that move, cut, join and select elements."""

from __future__ import annotations

import numpy as np

from ..case import C, Case, Random, case


def reshaping(r: Random) -> list[Case]:
    x = r.f(2, 3, 4, 5)
    return [
        case("Reshape", 1, x, C([6, 20]), variant="plain", special_zero=False),
        case("Reshape", 1, x, C([0, -1, 5]), variant="special", special_zero=True),
        case("Reshape", 1, x, C([-1], np.int32), variant="flat-i32", special_zero=True),
        case("Squeeze", 1, r.f(1, 3, 1, 5), C([0, 2]), variant="axes"),
        case("Squeeze", 1, r.f(1, 3, 1, 5), C([-2]), variant="negative"),
        case("Squeeze", 1, r.f(1, 3, 1), variant="all", dynamic=False),
        case(
            "Squeeze",
            15,
            r.f(2, 3, 1),
            C([0, 2]),
            variant="skip",
            allow_axis_skip=True,
            dynamic=False,
        ),
        case("Unsqueeze", 1, r.f(3, 5), C([0, 3])),
        case("Unsqueeze", 1, r.f(3, 5), C(-1), variant="scalar"),
        case("ShapeOf", 1, x),
        case("ShapeOf", 3, x, variant="i32", output_type="i32"),
        case("ShapeOf", 3, x, variant="i64", output_type="i64"),
        case("Transpose", 1, x, C([3, 0, 2, 1])),
        case("Transpose", 1, x, C(np.zeros(0, np.int64)), variant="reverse"),
        case("Transpose", 1, r.i(3, 7), C([1, 0]), variant="i32"),
    ]


def joining(r: Random) -> list[Case]:
    found = []
    for axis in (0, 1, -1):
        parts = [[2, 3, 4], [2, 3, 4], [2, 3, 4]]
        for number, part in enumerate(parts):
            part[axis] = number + 1
        found.append(case("Concat", 1, *(r.f(*p) for p in parts), variant=str(axis), axis=axis))
    found.append(case("Concat", 1, r.i(3), r.i(4), variant="i32", axis=0))
    found.append(case("Concat", 1, r.f(2, 3), C(r.f(2, 2)), variant="constant", axis=1))
    x = r.f(2, 6, 9)
    for axis, parts in ((1, 3), (-1, 3), (0, 2)):
        found.append(
            case("Split", 1, x, C(axis), outputs=parts, variant=f"{axis}", num_splits=parts)
        )
    found.append(case("VariadicSplit", 1, x, C(2), C([2, 3, 4]), outputs=3, variant="lengths"))
    found.append(case("VariadicSplit", 1, x, C(1), C([1, -1]), outputs=2, variant="rest"))
    found.append(case("Tile", 1, r.f(2, 3), C([2, 1, 3]), variant="longer"))
    found.append(case("Tile", 1, r.f(2, 3, 4), C([2, 2]), variant="shorter"))
    found.append(case("Tile", 1, r.i(2, 3), C([1, 4]), variant="i32"))
    found.append(case("Broadcast", 1, r.f(3, 1), C([2, 3, 4]), mode="numpy"))
    found.append(
        case(
            "Broadcast", 1, r.f(3, 4), C([3, 2, 4]), C([0, 2]), variant="explicit", mode="explicit"
        )
    )
    found.append(case("Broadcast", 3, r.f(3, 1), C([2, 3, 4]), variant="3", mode="numpy"))
    found.append(
        case("Broadcast", 3, r.f(4, 1, 3), C([5, 1]), variant="3-both", mode="bidirectional")
    )
    return found


def slicing(r: Random) -> list[Case]:
    x = r.f(4, 6, 8)
    masks = {
        "begin_mask": "0,0,0",
        "end_mask": "0,0,0",
        "new_axis_mask": "0,0,0",
        "shrink_axis_mask": "0,0,0",
        "ellipsis_mask": "0,0,0",
    }

    def strided(name: str, begin: list, end: list, step: list, **changes: str) -> Case:
        return case(
            "StridedSlice", 1, x, C(begin), C(end), C(step), variant=name, **{**masks, **changes}
        )

    return [
        strided("plain", [1, 0, 2], [3, 5, 8], [1, 2, 3]),
        strided("negative", [-1, -2, 7], [-4, 0, 0], [-1, -1, -3]),
        strided("masks", [1, 1, 1], [2, 2, 2], [1, 1, 1], begin_mask="1,0,0", end_mask="0,1,0"),
        strided("beyond", [-9, 0, 0], [99, 99, 99], [1, 1, 1]),
        strided("shrink", [1, 0, 2], [2, 6, 3], [1, 1, 1], shrink_axis_mask="1,0,1"),
        strided("new", [0, 1, 0], [1, 3, 6], [1, 1, 1], new_axis_mask="1,0,0"),
        strided(
            "ellipsis",
            [0, 1],
            [0, 5],
            [1, 2],
            begin_mask="0,0",
            end_mask="0,0",
            new_axis_mask="0,0",
            shrink_axis_mask="0,0",
            ellipsis_mask="1,0",
        ),
        case("Slice", 8, x, C([1, 0]), C([4, 5]), C([1, 2]), variant="two"),
        case("Slice", 8, x, C([-1]), C([-99]), C([-2]), C([2]), variant="negative"),
        case("Slice", 8, x, C([0, 7]), C([2**31, 1]), C([1, -1]), C([0, -1]), variant="axes"),
        case("SliceScatter", 15, x, r.f(2, 6, 8), C([1]), C([3]), C([1]), C([0])),
        case("SliceScatter", 15, x, r.f(4, 3, 8), C([0]), C([6]), C([2]), C([1]), variant="step"),
    ]


def padding(r: Random) -> list[Case]:
    x = r.f(2, 3, 5)
    found = []
    for mode in ("constant", "edge", "reflect", "symmetric"):
        found.append(
            case(
                "Pad",
                1,
                x,
                C([0, 1, 2]),
                C([1, 2, 0]) if mode in ("constant", "edge") else C([1, 2, 3]),
                C(np.float32(1.5)),
                variant=mode,
                pad_mode=mode,
            )
        )
    found.append(
        case("Pad", 1, x, C([0, 1, 2]), C([1, 2, 0]), variant="default", pad_mode="constant")
    )
    found.append(
        case("Pad", 12, x, C([0, -1, 2]), C([-1, 0, -2]), variant="negative", pad_mode="constant")
    )
    found.append(
        case(
            "Pad",
            1,
            r.i(3, 4),
            C([1, 0]),
            C([0, 2]),
            C(np.int32(7)),
            variant="i32",
            pad_mode="constant",
        )
    )
    return found


def gathering(r: Random) -> list[Case]:
    x = r.f(4, 5, 6)
    return [
        case("Gather", 1, x, C([[0, 3], [2, 2]]), C(0), variant="first"),
        case("Gather", 1, x, r.i(3, low=0, high=6), C(-1), variant="last"),
        case("Gather", 7, x, r.i(4, 2, low=0, high=5), C(1), variant="7-batch", batch_dims=1),
        case("Gather", 8, x, r.i(2, 3, low=-5, high=5), C(1), variant="8-negative"),
        case("Gather", 8, x, C(-2), C(1), variant="8-scalar"),
        case("Gather", 8, r.i(9), r.i(3, low=0, high=9, dtype=np.int64), C(0), variant="8-i32"),
        case("GatherElements", 6, x, r.i(4, 5, 3, low=0, high=6), axis=2),
        case("GatherElements", 6, x, r.i(2, 5, 6, low=0, high=4), variant="negative", axis=-3),
        case("GatherND", 5, x, r.i(2, 3, 2, low=0, high=4), batch_dims=0),
        case("GatherND", 5, x, r.i(4, 3, 1, low=0, high=5), variant="batch", batch_dims=1),
        case(
            "GatherND",
            8,
            r.f(2, 3, 4, 5),
            r.i(2, 3, 2, 1, low=0, high=4),
            variant="8-batch",
            batch_dims=2,
        ),
        case(
            "GatherTree",
            1,
            r.i(5, 2, 3, low=1, high=9),
            r.i(5, 2, 3, low=0, high=3),
            C(np.int32([5, 4])),
            C(np.int32(8)),
        ),
    ]


def scattering(r: Random) -> list[Case]:
    x = r.f(4, 5, 6)
    rows = np.broadcast_to(np.int32([[[3]], [[1]]]), (2, 5, 6)).copy()
    found = [
        case("ScatterUpdate", 3, x, C([2, 0]), r.f(4, 2, 6), C(1)),
        case("ScatterUpdate", 3, r.f(6), C([[2, 0]]), r.f(1, 2), C(0), variant="matrix"),
        case("ScatterElementsUpdate", 3, x, rows, r.f(2, 5, 6), C(0)),
        case("ScatterNDUpdate", 4, x, C([[0, 1], [3, 4], [2, 2]]), r.f(3, 6)),
        case("ScatterNDUpdate", 4, x, C([[0], [3]]), r.f(2, 5, 6), variant="rows"),
    ]
    for reduction in ("none", "sum", "prod", "min", "max", "mean"):
        for init in (True, False):
            rows = (
                np.tile(np.int32([[1], [3], [1]]), (1, 4))
                if reduction != "none"
                else (np.tile(np.int32([[1], [3], [2]]), (1, 4)))
            )
            found.append(
                case(
                    "ScatterElementsUpdate",
                    12,
                    r.f(5, 4),
                    rows,
                    r.f(3, 4),
                    C(0),
                    variant=f"12-{reduction}-{init}",
                    reduction=reduction,
                    use_init_val=init,
                )
            )
    for reduction in ("none", "sum", "sub", "prod", "min", "max"):
        places = [[0, 1], [3, 4], [0, 1]] if reduction != "none" else [[0, 1], [3, 4], [1, 1]]
        found.append(
            case(
                "ScatterNDUpdate",
                15,
                x,
                C(places),
                r.f(3, 6),
                variant=f"15-{reduction}",
                reduction=reduction,
            )
        )
    return found


def rearranging(r: Random) -> list[Case]:
    image = r.f(2, 8, 4, 6)
    found = []
    for mode in ("blocks_first", "depth_first"):
        found.append(case("DepthToSpace", 1, image, variant=mode, mode=mode, block_size=2))
        found.append(case("SpaceToDepth", 1, image, variant=mode, mode=mode, block_size=2))
        found.append(
            case(
                "DepthToSpace", 1, r.f(1, 8, 2, 3, 2), variant=f"3d-{mode}", mode=mode, block_size=2
            )
        )
    found += [
        case("BatchToSpace", 2, r.f(8, 2, 4, 6), C([1, 1, 2, 2]), C([0, 0, 1, 0]), C([0, 0, 0, 2])),
        case("SpaceToBatch", 2, r.f(2, 2, 3, 6), C([1, 1, 2, 3]), C([0, 0, 1, 0]), C([0, 0, 0, 0])),
        case("ShuffleChannels", 3, image, axis=1, group=4),
        case("ShuffleChannels", 3, image, variant="last", axis=-1, group=3),
        case("ReverseSequence", 1, r.f(4, 5, 3), C([1, 3, 5, 2]), batch_axis=0, seq_axis=1),
        case(
            "ReverseSequence",
            1,
            r.f(5, 3, 4),
            C([1, 3, 5, 2]),
            variant="last",
            batch_axis=2,
            seq_axis=0,
        ),
        case("Reverse", 1, r.f(3, 4, 5), C([0, 2]), mode="index"),
        case("Reverse", 1, r.f(3, 4, 5), C([True, False, True]), variant="mask", mode="mask"),
        case(
            "SparseFillEmptyRows",
            16,
            r.f(4),
            C([5, 6]),
            C([[0, 1], [0, 3], [2, 0], [3, 5]]),
            C(np.float32(7)),
            outputs=3,
            dynamic=False,
        ),
        case("Roll", 7, r.f(3, 4, 5), C([1, -2]), C([0, 2])),
        case("Roll", 7, r.f(3, 4), C([7]), C([-1]), variant="wrap"),
        case(
            "ExtractImagePatches",
            3,
            r.f(1, 3, 10, 10),
            sizes=(3, 3),
            strides=(3, 2),
            rates=(1, 2),
            auto_pad="valid",
        ),
        case(
            "ExtractImagePatches",
            3,
            r.f(2, 2, 7, 9),
            variant="same",
            sizes=(3, 2),
            strides=(2, 2),
            rates=(1, 1),
            auto_pad="same_upper",
        ),
        case(
            "ExtractImagePatches",
            3,
            r.f(2, 2, 7, 9),
            variant="lower",
            sizes=(3, 2),
            strides=(2, 2),
            rates=(1, 1),
            auto_pad="same_lower",
        ),
        case(
            "Col2Im",
            15,
            r.f(2, 12, 12),
            C([5, 4]),
            C([2, 2]),
            strides=(1, 1),
            dilations=(1, 1),
            pads_begin=(0, 0),
            pads_end=(0, 0),
        ),
    ]
    return found


def cases() -> list[Case]:
    r = Random("movement")
    return [
        *reshaping(r),
        *joining(r),
        *slicing(r),
        *padding(r),
        *gathering(r),
        *scattering(r),
        *rearranging(r),
    ]
