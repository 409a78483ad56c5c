"""Functions of one element, arithmetic, comparisons, logic, bits, conversions."""

from __future__ import annotations

import numpy as np

from ..case import C, Case, Random, case

SHAPES = [
    ((2, 3, 5), (2, 3, 5)),
    ((2, 3, 5), (5,)),
    ((1, 4, 1), (3, 1, 7)),
    ((), (2, 3)),
    ((7, 1), (1, 1, 1, 9)),
]

# Type to operation set and range of the input.
UNARY = {
    "Abs": (1, -3, 3),
    "Acos": (1, -0.99, 0.99),
    "Acosh": (4, 1.01, 9),
    "Asin": (1, -0.99, 0.99),
    "Asinh": (4, -5, 5),
    "Atan": (1, -5, 5),
    "Atanh": (4, -0.95, 0.95),
    "Ceiling": (1, -9, 9),
    "Cos": (1, -6, 6),
    "Cosh": (1, -4, 4),
    "Erf": (1, -3, 3),
    "Exp": (1, -5, 5),
    "Floor": (1, -9, 9),
    "HSigmoid": (5, -5, 5),
    "HSwish": (4, -5, 5),
    "Log": (1, 0.01, 20),
    "Mish": (4, -5, 5),
    "Negative": (1, -5, 5),
    "ReLU": (1, -3, 3),
    "Sigmoid": (1, -8, 8),
    "Sign": (1, -1, 1),
    "Sin": (1, -6, 6),
    "Sinh": (1, -4, 4),
    "SoftPlus": (4, -8, 8),
    "SoftSign": (9, -5, 5),
    "Sqrt": (1, 0, 9),
    "Tan": (1, -1.4, 1.4),
    "Tanh": (1, -4, 4),
    "ErfInv": (17, -0.98, 0.98),
    "Swish": (4, -5, 5),
}


def unary(r: Random) -> list[Case]:
    found = []
    for kind, (opset, low, high) in UNARY.items():
        for shape in ((3, 5, 7), (), (1, 2, 3, 4, 5)):
            x = r.f(*shape, low=low, high=high)
            name = f"{len(shape)}d"
            found.append(case(kind, opset, x, variant=name, tolerance="transcendental"))
        x = r.f(2, 9, low=low, high=high, dtype=np.float16)
        found.append(case(kind, opset, x, variant="f16"))
    for kind in ("Abs", "Negative", "Sign", "ReLU"):
        x = r.i(3, 7)
        found.append(case(kind, UNARY[kind][0], x, variant="i32"))
    odd = np.float32([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 3.4e38])
    for kind in ("Abs", "Exp", "Floor", "Negative", "ReLU", "Sigmoid", "Sqrt", "Tanh"):
        # OpenVINO's CPU plugin makes numbers of NaN in some of its approximations.
        approximated = kind in ("Exp", "ReLU", "Sigmoid", "Tanh")
        found.append(case(kind, 1, odd[1:] if approximated else odd, variant="odd"))
    found.append(case("IsNaN", 10, odd))
    # OpenVINO's CPU plugin calls denormal numbers infinite, and there is no reference for it.
    found.append(case("IsFinite", 10, np.delete(odd, 5)))
    for negative in (True, False):
        for positive in (True, False):
            found.append(
                case(
                    "IsInf",
                    10,
                    odd,
                    variant=f"{negative}-{positive}",
                    detect_negative=negative,
                    detect_positive=positive,
                )
            )
    found.append(case("IsInf", 10, odd, variant="default"))
    return found


def parametrised(r: Random) -> list[Case]:
    x = r.f(2, 3, 7, low=-5, high=5)
    halves = np.float32([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.4, -2.6])
    found = [
        case("Clamp", 1, x, min=-1.5, max=2.25),
        case("Clamp", 1, r.i(3, 7), variant="i32", min=-2.0, max=3.0),
        case("Elu", 1, x, alpha=0.7, tolerance="transcendental"),
        case("HardSigmoid", 1, x, C(np.float32(0.3)), C(np.float32(0.4))),
        case("Selu", 1, x, C(np.float32(1.67)), C(np.float32(1.05)), tolerance="transcendental"),
        case("PReLU", 1, x, C(np.float32([0.1, -0.2, 0.3])), variant="channels"),
        case("PReLU", 1, x, C(np.float32([0.1])), variant="one"),
        case("PReLU", 1, r.f(2, 3, 4, 5), C(r.f(3, 1, 1)), variant="shaped"),
        case("Swish", 4, x, C(np.float32(1.7)), variant="beta", tolerance="transcendental"),
        case("Gelu", 2, x, tolerance="transcendental"),
    ]
    for mode in ("ERF", "TANH"):
        found.append(
            case("Gelu", 7, x, variant=mode, approximation_mode=mode, tolerance="transcendental")
        )
    for mode in ("half_to_even", "half_away_from_zero"):
        found.append(case("Round", 5, halves, variant=mode, mode=mode))
    return found


ARITHMETIC = (
    "Add",
    "Subtract",
    "Multiply",
    "Divide",
    "Maximum",
    "Minimum",
    "SquaredDifference",
    "Mod",
    "FloorMod",
)
COMPARISONS = ("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual")


def binary(r: Random) -> list[Case]:
    found = []
    for kind in ARITHMETIC:
        for number, (a, b) in enumerate(SHAPES):
            y = r.f(*b, low=0.5, high=4) * np.where(r.b(*b), 1, -1).astype(np.float32)
            found.append(
                case(
                    kind,
                    1,
                    r.f(*a, low=-9, high=9),
                    y,
                    variant=f"f32-{number}",
                    auto_broadcast="numpy",
                )
            )
        y = r.i(3, 4, low=1, high=7) * np.where(r.b(3, 4), 1, -1)
        # Division rounds down (m_pythondiv); OpenVINO's CPU plugin, not its reference, ignores it.
        found.append(
            case(
                kind,
                1,
                r.i(2, 3, 4, low=-20, high=20),
                y.astype(np.int32),
                variant="i32",
                reference=kind == "Divide",
            )
        )
        found.append(
            case(
                kind,
                1,
                r.f(2, 5, low=1, high=3, dtype=np.float16),
                r.f(5, low=1, high=3, dtype=np.float16),
                variant="f16",
            )
        )
        found.append(
            case(
                kind,
                1,
                r.f(2, 3),
                C(r.f(2, 3, low=1, high=2)),
                variant="constant",
                auto_broadcast="none",
            )
        )
    found.append(case("Add", 1, r.f(2, 3, 4), r.f(3, 1), variant="numpy-1"))
    found.append(
        case("Power", 1, r.f(2, 3, 5, low=0.1, high=3), r.f(3, 1), tolerance="transcendental")
    )
    found.append(case("Power", 1, r.f(7), C(np.float32(2)), variant="square"))
    found.append(case("Power", 1, r.f(7), C(np.float32(3)), variant="cube"))
    found.append(case("Power", 1, r.i(7, low=0, high=5), C(np.int32(2)), variant="i32"))
    for kind in COMPARISONS:
        for number, (a, b) in enumerate(SHAPES):
            found.append(
                case(
                    kind,
                    1,
                    r.i(*a).astype(np.float32),
                    r.i(*b).astype(np.float32),
                    variant=f"f32-{number}",
                )
            )
        found.append(case(kind, 1, r.i(3, 9), r.i(9), variant="i32"))
    for kind in ("LogicalAnd", "LogicalOr", "LogicalXor", "Xor"):
        for number, (a, b) in enumerate(SHAPES):
            found.append(case(kind, 1, r.b(*a), r.b(*b), variant=str(number)))
    found.append(case("LogicalNot", 1, r.b(3, 7)))
    for kind in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        for dtype in (np.int32, np.uint8, np.int8):
            low = 0 if dtype is np.uint8 else -99
            found.append(
                case(
                    kind,
                    13,
                    r.i(2, 3, 5, low=low, high=99, dtype=dtype),
                    r.i(3, 1, low=low, high=99, dtype=dtype),
                    variant=np.dtype(dtype).name,
                )
            )
        found.append(case(kind, 13, r.b(3, 7), r.b(7), variant="bool"))
    for dtype in (np.int32, np.uint8, np.int8):
        low = 0 if dtype is np.uint8 else -99
        found.append(
            case(
                "BitwiseNot",
                13,
                r.i(5, 9, low=low, high=99, dtype=dtype),
                variant=np.dtype(dtype).name,
            )
        )
    for kind in ("BitwiseLeftShift", "BitwiseRightShift"):
        found.append(case(kind, 15, r.i(2, 3, 5, low=0, high=99), r.i(3, 1, low=0, high=5)))
    return found


def choice(r: Random) -> list[Case]:
    return [
        case("Select", 1, r.b(2, 3, 5), r.f(2, 3, 5), r.f(2, 3, 5), variant="same"),
        case("Select", 1, r.b(3, 1), r.f(2, 1, 5), r.f(5), variant="broadcast"),
        case("Select", 1, r.b(), r.f(2, 5), r.f(2, 5), variant="scalar"),
        case("Select", 1, r.b(4, 5), r.i(4, 5), r.i(4, 5), variant="i32"),
    ]


def conversions(r: Random) -> list[Case]:
    found = []
    sources = {
        "f32": r.f(3, 7, low=0, high=100),
        "i32": r.i(3, 7, low=0, high=100),
        "u8": r.i(3, 7, low=0, high=200, dtype=np.uint8),
        "boolean": r.b(3, 7),
        "i64": r.i(3, 7, low=0, high=100, dtype=np.int64),
        "f16": r.f(3, 7, low=0, high=100, dtype=np.float16),
    }
    for name, x in sources.items():
        for target in ("f32", "f16", "i32", "u8", "i8", "boolean", "i64"):
            if name != target and not (name == "u8" and target == "i8"):
                found.append(
                    case("Convert", 1, x, variant=f"{name}-{target}", destination_type=target)
                )
    found.append(case("ConvertLike", 1, sources["f32"], sources["i32"]))
    found.append(
        case(
            "ConvertPromoteTypes",
            14,
            r.f(3),
            r.i(3),
            outputs=2,
            variant="f32-i32",
            promote_unsafe=True,
        )
    )
    found.append(
        case("ConvertPromoteTypes", 14, r.i(3, dtype=np.int8), r.i(3), outputs=2, variant="i8-i32")
    )
    return found


def cases() -> list[Case]:
    r = Random("elementwise")
    return [*unary(r), *parametrised(r), *binary(r), *choice(r), *conversions(r)]
