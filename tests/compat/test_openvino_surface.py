"""Every public name of openvino is here or said to be absent, with the same arguments."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

import openvino
import pytest

import polydevice.compat.openvino as ours
from polydevice.compat.openvino.surface import ABSENT, DIFFERENT, OURS
from tests.compat.opset_arguments import lines

MODULES = [
    "",
    "exceptions",
    "frontend",
    "helpers",
    "op",
    "op.util",
    "passes",
    "preprocess",
    "properties",
    "properties.device",
    "properties.hint",
    "properties.intel_auto",
    "properties.intel_cpu",
    "properties.intel_gpu",
    "properties.intel_gpu.hint",
    "properties.log",
    "properties.streams",
    "utils",
    "utils.types",
    *[f"opset{number}" for number in range(1, 18)],
]

EVERYBODYS = set(dir(type("empty", (), {}))) | set(dir(int)) | {"name", "value"}
"""Members that any class may have, or any enumeration."""

ACCIDENTS = {
    "package_utils.",
    "properties.intel_gpu.hint.ThrottleLevel",  # of plugins that are no more
    "utils.types.Constant",
    "utils.types.Node",
    "utils.types.Output",
    "utils.types.Shape",
    "utils.types.Type",
    "utils.types.OVTypeError",
    "utils.types.log",
    "utils.types.openvino_to_numpy_types_map",
    "utils.types.openvino_to_numpy_types_str_map",
}
"""What `dir()` lists because a module imports it, or needs it for itself."""


def names_of(thing: object) -> list[str]:
    return sorted(name for name in dir(thing) if not name.startswith("_"))


def module(package: str, name: str) -> ModuleType:
    return importlib.import_module(f"{package}.{name}" if name else package)


def is_foreign(value: object) -> bool:
    """Whether a module has a name only because it imports it from elsewhere."""
    if inspect.ismodule(value):
        return not value.__name__.startswith("openvino")
    return getattr(value, "__module__", "openvino").partition(".")[0] in ("typing", "collections")


def real_names() -> list[str]:
    """Public names, and the members of public classes as class.name."""
    found = []
    for part in MODULES:
        real = module("openvino", part)
        for name in names_of(real):
            value = getattr(real, name)
            full = f"{part}.{name}" if part else name
            if is_foreign(value) or full in ACCIDENTS:
                continue
            found.append(full)
            own = not part or value not in vars(openvino).values()
            if inspect.isclass(value) and full not in ABSENT and own and "opset" not in part:
                members = set(names_of(value)) - EVERYBODYS
                if part == "passes" and issubclass(value, openvino.Node):
                    members -= set(names_of(openvino.Node))  # a pattern is no node here
                found += sorted(f"{full}.{member}" for member in members)
    return found


def held(name: str) -> bool:
    thing: object = ours
    for part in name.split("."):
        slots = getattr(thing, "__slots__", ())
        code = getattr(getattr(thing, "__init__", None), "__code__", None)
        if part in slots or (code is not None and part in code.co_names):
            return True
        try:
            thing = getattr(thing, part)
        except AttributeError:
            return False
    return True


def is_absent(name: str) -> bool:
    """Whether the tables say so, of the name itself, or of a class above it."""
    last = ".".join(name.split(".")[-2:])
    inherited = [f"Node.{name.rpartition('.')[2]}"] if name.startswith("op.") else []
    return any(each in ABSENT for each in (name, last, *inherited))


def test_each_name_is_here_or_said_to_be_absent() -> None:
    """One test of thousands of names: as many tests cost more to tell of than to run."""
    names = real_names()
    assert names
    wrong = [name for name in names if held(name) == is_absent(name)]
    assert not wrong, f"neither here nor in ABSENT, or both: {wrong}"


def test_the_tables_name_nothing_that_does_not_exist() -> None:
    if openvino.__version__.partition("-")[0].split(".")[:2] != ours.__version__.split(".")[:2]:
        pytest.skip(f"the tables are for {ours.__version__}; {openvino.__version__} is here")
    known = {*real_names(), "tools", "exceptions", "layout_helpers", "torch"}
    known |= {f"opset{n}.{name}" for n in range(1, 18) for name in ("if_op", "loop", "ops")}
    known |= {f"opset{n}.tensor_iterator" for n in range(1, 18)}
    known |= {".".join(name.split(".")[-2:]) for name in known}
    assert set(ABSENT) | set(DIFFERENT) | set(OURS) <= known
    assert not set(ABSENT) & (set(DIFFERENT) | set(OURS))


def test_functions_of_the_operation_sets_take_what_the_real_ones_take() -> None:
    """The file is written by `python -m tests.compat.opset_arguments`, from the real package."""
    here = (
        importlib.resources.files("polydevice.compat.openvino.models")
        .joinpath("opset_arguments.txt")
        .read_text()
    )
    assert here.splitlines() == lines()


def test_every_function_has_an_operation_in_core() -> None:
    from polydevice.compat.openvino.models.opsets import NEWEST, arguments, function

    for name in arguments():
        assert callable(function(name, NEWEST)), name
    with pytest.raises(AttributeError, match="opset1 has no 'gelu'"):
        function("gelu", 1)


ENUMERATIONS = [
    f"{part}.{name}" if part else name
    for part in MODULES
    for name in names_of(module("openvino", part))
    if hasattr(getattr(module("openvino", part), name), "__members__")
    and "opset" not in part
    and f"{part}.{name}" not in ABSENT | dict.fromkeys(ACCIDENTS)
]


@pytest.mark.parametrize("name", ENUMERATIONS)
def test_an_enumeration_has_the_same_numbers(name: str) -> None:
    part, _, last = name.rpartition(".")
    real, here = getattr(module("openvino", part), last), getattr(module(ours.__name__, part), last)
    assert {k: int(v) for k, v in here.__members__.items()} == {
        k: int(v) for k, v in real.__members__.items()
    }
    for member in {int(v): k for k, v in reversed(real.__members__.items())}.values():
        assert str(getattr(here, member)) == str(getattr(real, member))


PROPERTIES = [part for part in MODULES if part.startswith("properties")]


@pytest.mark.parametrize("part", PROPERTIES)
def test_properties_are_called_the_same(part: str) -> None:
    here = module(ours.__name__, part)
    names = {n: str(v) for n, v in vars(here).items() if isinstance(v, str) and n[0] != "_"}
    assert names or part == "properties"
    for name, text in names.items():
        if name == "cache_encryption_callbacks":  # has no name there that can be read
            continue
        assert getattr(module("openvino", part), name)() == text == getattr(here, name)()


def classes() -> list[str]:
    return [
        name
        for name in names_of(openvino)
        if inspect.isclass(getattr(openvino, name)) and name not in ABSENT
    ]


def signatures() -> list[str]:
    """Names whose arguments Python knows on both sides."""
    found = []
    for name in real_names():
        part = name.rpartition(".")[0]
        if is_absent(name) or (part in MODULES and part.startswith("opset")):
            continue
        value = attribute(openvino, name)
        if not inspect.isfunction(value):
            continue
        found.append(name)
    return found


def attribute(package: object, name: str) -> object:
    for part in name.split("."):
        package = getattr(package, part)
    return package


@pytest.mark.parametrize("name", signatures())
def test_arguments_have_the_same_names_order_and_defaults(name: str) -> None:
    real = inspect.signature(attribute(openvino, name)).parameters.values()  # type: ignore[arg-type]
    here = inspect.signature(attribute(ours, name)).parameters.values()  # type: ignore[arg-type]
    assert [(p.name, p.kind, p.default) for p in here] == [
        (p.name, p.kind, p.default) for p in real
    ]
