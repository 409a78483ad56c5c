"""Function: a kernel as a function that another kernel calls for one work-group after the other."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator

from polydevice.dataclass import dataclass
from polydevice_gpu.kernels.launch import Body, Launch

WARP_GROUPS = True
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_FUNCTION = re.compile(r"^static inline [\w ]+?(\w+)\(", re.MULTILINE)
_TYPE = re.compile(r"^typedef struct \{[^}]*\} (\w+);", re.MULTILINE)
_LOCAL = re.compile(r"__local [^*;]*;")
_PARAMETER = re.compile(r"(.*?)\s*\b(?:restrict )?(\w+)$")
_SCALARS = {
    "float": "as_float(STAGE_LOW({}))",
    "double": "as_double(STAGE_WORD({}))",
    **{kind: f"({kind})STAGE_LOW({{}})" for kind in ("int", "uint")},
    **{kind: f"({kind})STAGE_LOW({{}})" for kind in ("char", "uchar", "short", "ushort")},
    **{kind: f"({kind})STAGE_WORD({{}})" for kind in ("long", "ulong")},
}
"""C type of a number → how it is had from the word that stands for it."""

_HEAD = """\
#define KERNEL(name) static inline void {name}(PARAMETERS, const uint3 stage_group, \\
    const uint3 stage_groups, const uint stage_item, const uint stage_slot, \\
    __local uchar* stage_memory)
#define LOCAL_ARRAY(type, name, count, rest, alignment) \\
    stage_memory += -(uint)(size_t)stage_memory & ((alignment) - 1); \\
    __local type (*name) rest = (__local type (*) rest)stage_memory; \\
    stage_memory += (count) * sizeof(type rest)
#define STAGE_OF(v, d) ((d) == 0 ? (v).x : (d) == 1 ? (v).y : (v).z)
#define get_local_size(d) ((size_t)((d) == 0 ? {x} : (d) == 1 ? {y} : {z}))
#define get_local_id(d) \\
    ((size_t)((d) == 0 ? stage_item % {x} : (d) == 1 ? stage_item / {x} % {y} : \\
              stage_item / ({x} * {y})))
#define get_group_id(d) ((size_t)STAGE_OF(stage_group, d))
#define get_num_groups(d) ((size_t)STAGE_OF(stage_groups, d))
#define get_global_id(d) (get_group_id(d) * get_local_size(d) + get_local_id(d))
#define get_global_size(d) (get_num_groups(d) * get_local_size(d))
"""
_HEAD_NAMES = tuple(_MACRO.findall(_HEAD))


@dataclass(frozen=True)
class Function:
    """One distinct kernel: its source, and the local size that is compiled into it.

    Attributes:
        body: the source.
        local: work-items of a group in three dimensions; of kernels that leave it to the driver,
            each work-item is a group.
    """

    body: Body
    local: tuple[int, int, int]

    @classmethod
    def of(cls, launch: Launch) -> Function:
        """Return the function that a launch calls; its body must be known."""
        assert launch.body is not None
        x, y, z = (*(launch.local_size or ()), 1, 1, 1)[:3]
        return cls(launch.body, (x, y, z))

    @property
    def items(self) -> int:
        """Work-items of a group."""
        return math.prod(self.local)

    @property
    def has_barriers(self) -> bool:
        """Whether work-items may wait for one another."""
        return self.items > 1 and any(_calls(self.body.text, "barrier("))

    def definition(self, number: int, barrier: str) -> str:
        """Return the function's text.

        Everything that the kernel defines at file scope gets names of its own, and its macros end
        with it.

        Args:
            number: of the function; it is called ``body<number>``.
            barrier: what ``barrier(flags)`` is there; "" for the group's own.
        """
        text = self.body.text
        x, y, z = self.local
        own = [*_FUNCTION.findall(text), *_TYPE.findall(text)]
        # In front: kernels put names together from parts, and widths stand at their ends.
        renamed = {name: f"of_body{number}_{name}" for name in own}
        head = [f"#define {name} {new}" for name, new in renamed.items()]
        head.append(_HEAD.format(name=f"body{number}", x=x, y=y, z=z))
        ends = [*_HEAD_NAMES, *renamed, *_MACRO.findall(text)]
        if barrier or self.items == 1:
            head.append(f"#define barrier(flags) {barrier}")
            ends.append("barrier")
        return "\n".join([*head, text, *(f"#undef {name}" for name in dict.fromkeys(ends))])

    def call(self, number: int, first: int) -> tuple[str, str]:
        """Return what reads the words of a stage, once, and the call of the function.

        Args:
            number: of the function.
            first: word in the stage's record at which arguments begin.
        """
        reads, values = [], []
        for position, parameter in enumerate(self.body.parameters):
            kind, is_pointer = type_of(parameter)
            at, name = first + position, f"given{position}"
            values.append(name)
            if not is_pointer:
                reads.append(f"const {kind} {name} = {_SCALARS[kind].format(at)};")
            elif "__local" in kind:
                reads.append(f"const uint {name} = STAGE_LOW({at});")
                values[-1] = f"({kind})(slot_memory + {name})"
            else:
                reads.append(f"const ulong word{position} = STAGE_WORD({at});")
                reads.append(f"{kind} const {name} = ({kind})STAGE_POINTER(word{position});")
        # Arrays lie behind what arguments in local memory take, which the last word says.
        behind = first + len(values)
        held = any("slot_memory" in value for value in values)
        reads.append(f"const uint taken = {f'STAGE_LOW({behind})' if held else '0'};")
        more = "group, groups, item, slot, slot_memory + taken"
        return " ".join(reads), f"body{number}({', '.join(values)}, {more})"


@functools.lru_cache(1024)  # kernels have few kinds of parameters, and each is asked of often
def type_of(parameter: str) -> tuple[str, bool]:
    """Return a parameter's type without qualifiers of the parameter, and whether it points."""
    found = _PARAMETER.fullmatch(parameter)
    assert found is not None, parameter
    kind = found[1].removesuffix("restrict").strip()
    if kind.endswith("*"):
        return kind, True
    return kind.removeprefix("const ").strip(), False


def why_no_function(launch: Launch) -> str:
    """Say why a launch's kernel cannot be called as a function; empty when it can."""
    if launch.body is None:
        return "its kernel was written by somebody else"
    if launch.body.sub_groups:
        return "its kernel works by sub-groups"
    if "//@warp_group" in launch.text and not WARP_GROUPS:
        return "its kernel is changed after compiling"
    for parameter in launch.body.parameters:
        kind, is_pointer = type_of(parameter)
        if not is_pointer and kind not in _SCALARS:
            return f"no number of type {kind} can be passed"
    text = launch.body.text
    declarations = (at for line, at in _found(text, "__local ") if not text[line:at].strip())
    if any(_LOCAL.match(text, at) for at in declarations):
        return "its kernel declares local memory by other means than LOCAL_ARRAY"
    return ""


def lines_with(text: str, word: str) -> str:
    """Return the lines in which a word stands: a pattern goes through them in no time."""
    text += "\n"
    lines = {line: text[line : text.index("\n", at)] for line, at in _found(text, word)}
    return "\n".join(lines.values())


def _calls(text: str, word: str) -> Iterator[bool]:
    """Yield of every place with a word whether it begins there; a pattern takes 0.2 ms a kernel."""
    at = text.find(word)
    while at >= 0:
        yield not at or not (text[at - 1].isalnum() or text[at - 1] == "_")
        at = text.find(word, at + 1)


def _found(text: str, word: str) -> Iterator[tuple[int, int]]:
    """Yield where a word stands, each time with where its line begins."""
    at = text.find(word)
    while at >= 0:
        yield text.rfind("\n", 0, at) + 1, at
        at = text.find(word, at + 1)
