"""Reductions, normalisation, softmax, quantisation, sorting, generation, search."""

from __future__ import annotations

import numpy as np

from ..case import C, Case, Random, case


def reductions(r: Random) -> list[Case]:
    found = []
    for kind, opset in (
        ("ReduceSum", 1),
        ("ReduceMean", 1),
        ("ReduceMax", 1),
        ("ReduceMin", 1),
        ("ReduceProd", 1),
        ("ReduceL1", 4),
        ("ReduceL2", 4),
    ):
        for keep in (True, False):
            found.append(
                case(
                    kind, opset, r.f(2, 3, 4, 5), C([1, -1]), variant=f"two-{keep}", keep_dims=keep
                )
            )
        found.append(case(kind, opset, r.f(3, 37), C(0), variant="scalar axis", keep_dims=False))
        found.append(case(kind, opset, r.f(2, 3, 4), C([0, 1, 2]), variant="all", keep_dims=False))
        found.append(
            case(kind, opset, r.i(3, 4, low=1, high=5), C([1]), variant="i32", keep_dims=True)
        )
    for kind in ("ReduceLogicalAnd", "ReduceLogicalOr"):
        for keep in (True, False):
            found.append(case(kind, 1, r.b(2, 3, 4), C([1]), variant=str(keep), keep_dims=keep))
    for exclusive in (True, False):
        for reverse in (True, False):
            found.append(
                case(
                    "CumSum",
                    3,
                    r.f(2, 5, 3),
                    C(1),
                    variant=f"{exclusive}-{reverse}",
                    exclusive=exclusive,
                    reverse=reverse,
                )
            )
    found.append(case("CumSum", 3, r.i(2, 5), C(-1), variant="i32"))
    return found


def normalisation(r: Random) -> list[Case]:
    x = r.f(2, 6, 4, 5)
    tolerance = "division by a root"
    found = [
        case("SoftMax", 1, x, axis=1, tolerance="transcendental"),
        case("SoftMax", 8, x, variant="8-last", axis=-1, tolerance="transcendental"),
        case("SoftMax", 8, x, variant="8-first", axis=0, tolerance="transcendental"),
        case("LogSoftmax", 5, x, axis=-2, tolerance="transcendental"),
        case("GRN", 1, x, bias=0.3, tolerance=tolerance),
        # OpenVINO's CPU plugin takes every bias as 1, and has no reference for it.
        case("LRN", 1, x, C([1]), variant="channels", alpha=0.5, beta=0.75, bias=1.0, size=3),
        case("LRN", 1, x, C([2, 3]), variant="spatial", alpha=0.5, beta=0.75, bias=1.0, size=3),
        case(
            "BatchNormInference",
            1,
            C(r.f(6, low=1, high=2)),
            C(r.f(6)),
            x,
            C(r.f(6)),
            C(r.f(6, low=0.5, high=2)),
            epsilon=1e-3,
            tolerance=tolerance,
        ),
        case(
            "BatchNormInference",
            5,
            x,
            C(r.f(6, low=1, high=2)),
            C(r.f(6)),
            C(r.f(6)),
            C(r.f(6, low=0.5, high=2)),
            epsilon=1e-3,
            tolerance=tolerance,
        ),
        case(
            "GroupNormalization",
            12,
            x,
            C(r.f(6)),
            C(r.f(6)),
            num_groups=3,
            epsilon=1e-4,
            tolerance=tolerance,
        ),
    ]
    for across in (True, False):
        for variance in (True, False):
            found.append(
                case(
                    "MVN",
                    2,
                    x,
                    variant=f"{across}-{variance}",
                    across_channels=across,
                    normalize_variance=variance,
                    eps=1e-5,
                    tolerance=tolerance,
                )
            )
    for mode in ("inside_sqrt", "outside_sqrt"):
        for axes in ([2, 3], [1, 2, 3]):
            found.append(
                case(
                    "MVN",
                    6,
                    x,
                    C(axes),
                    variant=f"{mode}-{len(axes)}",
                    eps=1e-3,
                    eps_mode=mode,
                    normalize_variance=True,
                    tolerance=tolerance,
                )
            )
    found.append(
        case(
            "MVN",
            6,
            r.f(3, 7),
            C([-1]),
            variant="last",
            eps=1e-3,
            eps_mode="inside_sqrt",
            normalize_variance=False,
            tolerance=tolerance,
        )
    )
    for mode in ("add", "max"):
        for axes in ([1], [1, 2, 3], []):
            found.append(
                case(
                    "NormalizeL2",
                    1,
                    x,
                    C(axes, np.int64),
                    variant=f"{mode}-{len(axes)}",
                    eps=1e-3,
                    eps_mode=mode,
                    tolerance=tolerance,
                )
            )
    return found


def quantisation(r: Random) -> list[Case]:
    x = r.f(2, 3, 5, 5, low=-6, high=6)

    def per_channel(low: float, high: float) -> object:
        return C(r.f(1, 3, 1, 1, low=low, high=high))

    one = [C(np.float32(v)) for v in (-4.0, 4.0, -2.0, 2.0)]
    found = [
        case("FakeQuantize", 1, x, *one, variant="256", levels=256, tolerance="quantized"),
        case("FakeQuantize", 1, x, *one, variant="4", levels=4, tolerance="quantized"),
        case(
            "FakeQuantize",
            1,
            x,
            per_channel(-5, -3),
            per_channel(3, 5),
            per_channel(-1, -1),
            per_channel(1, 2),
            variant="channels",
            levels=255,
            tolerance="quantized",
        ),
        case(
            "FakeQuantize",
            1,
            x,
            *(C(np.float32(v)) for v in (0.5, 0.5, 0, 1)),
            variant="binary",
            levels=2,
            auto_broadcast="numpy",
            reference=True,
        ),  # the CPU plugin crashes
    ]
    for kind in ("f8e4m3", "f8e5m2"):
        found.append(
            case(
                "FakeConvert",
                13,
                r.f(2, 3, low=-9, high=9),
                C(np.float32([1.5])),
                variant=kind,
                destination_type=kind,
            )
        )
        found.append(
            case(
                "FakeConvert",
                13,
                r.f(2, 3, low=-9, high=9),
                C(np.float32([1.5])),
                C(np.float32([0.3])),
                variant=f"{kind}-shift",
                destination_type=kind,
            )
        )
    return found


def sorting(r: Random) -> list[Case]:
    found = []
    for mode in ("max", "min"):
        for sort in ("value", "index"):
            for axis in (1, -1):
                found.append(
                    case(
                        "TopK",
                        3,
                        r.distinct(3, 7, 5),
                        C(3),
                        outputs=2,
                        variant=f"{mode}-{sort}-{axis}",
                        axis=axis,
                        mode=mode,
                        sort=sort,
                        index_element_type="i32",
                    )
                )
    found += [
        case(
            "TopK",
            1,
            r.distinct(3, 7),
            C(np.int64(2)),
            outputs=2,
            variant="1",
            axis=1,
            mode="max",
            sort="value",
        ),
        case(
            "TopK",
            11,
            r.i(3, 9, low=0, high=4).astype(np.float32),
            C(5),
            outputs=2,
            variant="stable",
            axis=1,
            mode="max",
            sort="value",
            stable=True,
            index_element_type="i64",
        ),
        case(
            "TopK",
            3,
            r.distinct(3, 7),
            C(1),
            outputs=2,
            variant="one",
            axis=0,
            mode="max",
            sort="value",
            index_element_type="i64",
        ),
        case("NonZero", 3, r.i(3, 4, low=0, high=2), output_type="i64"),
        case("NonZero", 3, r.f(2, 3, 2) * r.b(2, 3, 2), variant="f32", output_type="i32"),
    ]
    values = r.i(4, 5, low=0, high=4)
    for ordered in (True, False):
        found.append(
            case(
                "Unique",
                10,
                values,
                outputs=4,
                variant=f"flat-{ordered}",
                sorted=ordered,
                index_element_type="i64",
                count_element_type="i64",
            )
        )
    found.append(
        case(
            "Unique",
            10,
            r.i(5, 2, low=0, high=2),
            C(0),
            outputs=4,
            variant="rows",
            sorted=True,
            index_element_type="i32",
            count_element_type="i64",
        )
    )
    return found


def search(r: Random) -> list[Case]:
    table = np.sort(r.distinct(3, 9), -1)
    found = []
    for right in (True, False):
        found.append(
            case(
                "Bucketize",
                3,
                r.f(2, 7),
                C(np.float32([-1, 0, 0.5, 1.5])),
                variant=str(right),
                with_right_bound=right,
                output_type="i32",
            )
        )
        found.append(
            case(
                "SearchSorted",
                15,
                table,
                wanted := r.distinct(3, 4),
                variant=str(right),
                others=[table + 1, wanted[::-1].copy()],  # still sorted
                right_mode=right,
            )
        )
        found.append(
            case(
                "SearchSorted",
                15,
                table[0],
                wanted := r.distinct(2, 4),
                variant=f"flat-{right}",
                others=[table[0] + 1, wanted[::-1].copy()],
                right_mode=right,
            )
        )
    return found


def generation(r: Random) -> list[Case]:
    return [
        case("Range", 1, C(1), C(12), C(3), variant="1"),
        case(
            "Range",
            4,
            C(np.float32(1)),
            C(np.float32(-2.2)),
            C(np.float32(-0.5)),
            variant="f32",
            output_type="f32",
        ),
        case("Range", 4, np.int32(2), np.int32(9), np.int32(2), variant="given", output_type="i64"),
        case(
            "OneHot",
            1,
            r.i(3, 2, low=0, high=5),
            C(5),
            C(np.float32(2)),
            C(np.float32(-1)),
            axis=-1,
        ),
        case("OneHot", 1, r.i(4, low=-2, high=7), C(5), C(1), C(0), variant="outside", axis=0),
        case(
            "OneHot",
            16,
            r.i(4, low=-5, high=5),
            C(5),
            C(1),
            C(0),
            variant="16-ignore",
            axis=0,
            negative_indices_mode="ignore_negative",
        ),
        case(
            "OneHot",
            16,
            r.i(4, low=-5, high=5),
            C(5),
            C(1),
            C(0),
            variant="16-normalize",
            axis=1,
            negative_indices_mode="normalize",
        ),
        case("Eye", 9, C(3), C(5), C(1), output_type="f32"),
        case("Eye", 9, C(3), C(4), C(-1), C([2, 1]), variant="batch", output_type="i32"),
    ]


def cases() -> list[Case]:
    r = Random("reduction")
    return [
        *reductions(r),
        *normalisation(r),
        *quantisation(r),
        *sorting(r),
        *search(r),
        *generation(r),
    ]
