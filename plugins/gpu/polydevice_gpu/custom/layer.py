"""CustomLayer: what one element of a configuration file says, checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from polydevice.dataclass import dataclass
from polydevice.errors import OptionValueError
from polydevice.files.safe_open import read_named
from polydevice_gpu.custom.formula import calculate
from polydevice_gpu.custom.xml import Element, read_elements, shown

FORMATS = {
    "BFYX": (0, 1, 2, 3),
    "BYXF": (0, 2, 3, 1),
    "FYXB": (1, 2, 3, 0),
    "YXFB": (2, 3, 1, 0),
}
"""Format → axes from the outermost to the innermost."""
ANY = "ANY"
_ONES = dict.fromkeys("BFYX", 1)
_SOURCE_LIMIT_BYTES = 16 << 20
_FORMULA_CHARACTERS = 500
_INCLUDE = re.compile(
    r"(?:#|%:|\?\?=)(?:\s|/\*.*?\*/)*(include|include_next|import|embed)\b", re.DOTALL
)
_OPTION = re.compile(r"-cl-[\w.=+-]+|-D[A-Za-z_]\w*(=[\w.+-]*)?|-w|-Werror", re.ASCII)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Define:
    """A macro; its value is the operation's attribute `param`, else `default`."""

    name: str
    param: str
    default: str
    type: str


@dataclass(frozen=True)
class Binding:
    """The kernel's argument number `argument` is an input or output of the operation."""

    argument: int
    port: int
    is_input: bool
    format: str


@dataclass(frozen=True)
class CustomLayer:
    """A kernel for operations of one type.

    Attributes:
        name: type of the operations.
        entry: name of the kernel function.
        source: OpenCL C, all files together.
        sizes_of: input whose sizes the formulas mean; -1 for the output.
        global_size: formulas.
        local_size: formulas; empty leaves it to the driver.
        where: file and line, for messages.
    """

    name: str
    entry: str
    source: str
    defines: tuple[Define, ...]
    bindings: tuple[Binding, ...]
    options: tuple[str, ...]
    sizes_of: int
    global_size: tuple[str, ...]
    local_size: tuple[str, ...]
    where: str


def read_layers(paths: str) -> dict[str, CustomLayer]:
    """Return operation type → layer for the files of CONFIG_FILE; later ones replace earlier ones.

    Args:
        paths: separated by blanks.

    Raises:
        ValueError: naming file, line and reason; nothing is returned then.
    """
    found = {}
    for text in paths.split():
        path = Path(text).absolute()
        elements = read_elements(path)
        if not elements:
            raise ValueError(f"{path}, line 1: no CustomLayer in it")
        for element in elements:
            if element.tag != "CustomLayer":
                raise ValueError(f"{element.where}: {element.tag[:40]} instead of CustomLayer")
            layer = _layer(element, path.parent)
            found[layer.name] = layer
    return found


def _layer(element: Element, folder: Path) -> CustomLayer:
    name = element.text("name")
    if element.text("type") != "SimpleGPU":
        raise ValueError(f"{element.where}: type={shown(element.text('type'))}; legal: SimpleGPU")
    if element.number("version") != 1:
        raise ValueError(f"{element.where}: version={shown(element.text('version'))}; legal: 1")
    kernel, buffers = element.one("Kernel"), element.one("Buffers")
    sizes = element.all("WorkSizes")
    if len(sizes) > 1:
        raise ValueError(f"{sizes[1].where}: a second WorkSizes")
    # Without the element, the formulas' sizes are those of input 0, as in the original.
    of, global_size, local_size = _work_sizes(sizes[0]) if sizes else (0, ("B*F*Y*X",), ())
    return CustomLayer(
        name=name,
        entry=_identifier(kernel, "entry"),
        source=_source(kernel, folder),
        defines=tuple(_define(child) for child in kernel.all("Define")),
        bindings=_bindings(buffers),
        options=_compiler_options(element),
        sizes_of=of,
        global_size=global_size,
        local_size=local_size,
        where=element.where,
    )


def _identifier(element: Element, name: str) -> str:
    value = element.text(name)
    if not _IDENTIFIER.fullmatch(value):
        raise ValueError(f"{element.where}: {name}={shown(value)} is no name in OpenCL C")
    return value


def _source(kernel: Element, folder: Path) -> str:
    files = kernel.all("Source")
    if not files:
        raise ValueError(f"{kernel.where}: Kernel needs a Source")
    parts = []
    for file in files:
        location = file.text("filename")
        try:
            content = read_named(folder, location, "source", OptionValueError, _SOURCE_LIMIT_BYTES)
            text = content.decode("utf-8")
        except (OptionValueError, UnicodeDecodeError) as error:
            # Not the codec's message, which quotes the file.
            reason = "is no UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            raise ValueError(f"{file.where}: source {shown(location)}: {reason}") from None
        _check_includes(text, f"{file.where}: source {shown(location)}")
        parts.append(f"// {location}\n{text}")
    return "\n".join(parts)


def _check_includes(text: str, where: str) -> None:
    """Refuse directives that make a compiler read further files, and print them in its messages.

    Taken literally, comments and strings included: what a compiler sees as one is its own affair.
    """
    for spliced in ("\\\r\n", "\\\n", "\\\r", "??/\n", "??/\r\n"):
        text = text.replace(spliced, "")
    found = _INCLUDE.search(text)
    if found is not None:
        raise ValueError(
            f"{where} has the directive {found.group(1)!r}; give what it needs as a further Source "
            "of the Kernel"
        )


def _compiler_options(element: Element) -> tuple[str, ...]:
    options = tuple(
        option
        for child in element.all("CompilerOptions")
        for option in child.attributes.get("options", "").split()
    )
    for option in options:
        if not _OPTION.fullmatch(option):
            raise ValueError(
                f"{element.where}: compiler option {shown(option)}; legal: -cl-…, -DNAME, "
                "-DNAME=VALUE, -w and -Werror"
            )
    return options


def _define(element: Element) -> Define:
    values = [element.attributes.get(name, "") for name in ("param", "default", "type")]
    if not all(value.isprintable() for value in values):
        raise ValueError(f"{element.where}: a macro has one line")
    return Define(_identifier(element, "name"), *values)


def _bindings(buffers: Element) -> tuple[Binding, ...]:
    data = buffers.all("Data")
    if data:
        raise ValueError(
            f"{data[0].where}: Data buffers are not possible, as operations have no named blobs; "
            "give constants as inputs"
        )
    bindings = [_binding(tensor) for tensor in buffers.all("Tensor")]
    numbers = sorted(binding.argument for binding in bindings)
    if not numbers or numbers != list(range(len(numbers))):
        raise ValueError(
            f"{buffers.where}: the arg-index of Tensors are {numbers or 'missing'}; needed are 0, "
            "1, … each once"
        )
    if not any(not binding.is_input for binding in bindings):
        raise ValueError(f"{buffers.where}: no Tensor of type output")
    return tuple(sorted(bindings, key=lambda binding: binding.argument))


def _binding(tensor: Element) -> Binding:
    kind = tensor.text("type")
    if kind not in {"input", "output"}:
        raise ValueError(f"{tensor.where}: type={shown(kind)}; legal: input, output")
    given = tensor.attributes.get("format", "BFYX")
    if given.upper() not in {*FORMATS, ANY} or given not in {given.upper(), given.lower()}:
        raise ValueError(
            f"{tensor.where}: format={shown(given)}; legal: {', '.join([*FORMATS, ANY])}"
        )
    port = tensor.number("port-index")
    if kind == "output" and port != 0:
        raise ValueError(f"{tensor.where}: port-index={port}; only output 0 can be written")
    return Binding(tensor.number("arg-index"), port, kind == "input", given.upper())


def _work_sizes(element: Element) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    dim = element.attributes.get("dim", "output").strip()
    found = re.fullmatch(r"output|input(?:[,\s]\s*(\d+))?", dim)
    if found is None:
        raise ValueError(f"{element.where}: dim={shown(dim)}; legal: output, input, or input,N")
    of = -1 if dim == "output" else int(found.group(1) or 0)
    global_size = _formulas(element, "global") or ("B*F*Y*X",)
    local_size = _formulas(element, "local")
    if local_size and len(local_size) != len(global_size):
        raise ValueError(f"{element.where}: global and local have different numbers of sizes")
    return of, global_size, local_size


def _formulas(element: Element, name: str) -> tuple[str, ...]:
    text = element.attributes.get(name, "")
    formulas: Sequence[str] = text.split(",") if text.strip() else ()
    if len(formulas) > 3:
        raise ValueError(f"{element.where}: {name} has {len(formulas)} sizes; at most 3")
    for formula in formulas:
        if len(formula) > _FORMULA_CHARACTERS:
            raise ValueError(f"{element.where}: {name} has a formula of {len(formula)} characters")
        try:
            calculate(formula, _ONES)
        except ValueError as error:
            raise ValueError(f"{element.where}: {name}: {error}") from None
    return tuple(formulas)
