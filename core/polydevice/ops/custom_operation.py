"""operation: a NumPy function as an operation of every device, with an OpenCL body if it has."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.errors import (
    ElementTypeError,
    NetworkError,
    PolydeviceError,
    ShapeError,
    nearest,
)
from polydevice.ops import op as table
from polydevice.ops.op import Op, attribute
from polydevice.ops.opencl_body import (
    LOCAL_TYPES,
    MOST_OPENCL_INPUTS,
    OpenClBody,
    OpenClGroupBody,
    WorkGroups,
    lines_above,
)
from polydevice.ops.python_operation import LEFT_OUT, PythonOperation, without_none
from polydevice.shape import DimLike, Shape, broadcast
from polydevice.tensor import TensorDesc

ShapeRule = str | Callable[..., Any]
"""``"same"``, ``"broadcast"``, or a function of the inputs' shapes and the attributes."""

TypeRule = str | ElementType | Sequence[str | ElementType]
"""``"same"`` or an element type, such as ``"i64"``, for all outputs or for each."""

_ATTRIBUTE_KINDS = (int, float, str, bool)
_LOCAL = re.compile(r"(\w+)\s*\[\s*(\d+)\s*\]")
_OWN_DOMAINS = re.compile(r"(opset\d*|onnx|ai\.onnx(\..*)?|unknown|runtime|polydevice.*|)")


class CustomOperation:
    """A function that is an operation; calling it calls the function.

    Attributes:
        function: takes arrays, and attributes by keyword; returns an array or several.
        defaults: what the function takes for inputs that are left out.
        name: type of the operation in model files.
        domain: operation set in IR files, domain in ONNX files.
        op: class of the operation, for networks built in Python.
        element: computes an element in OpenCL C; None where there is no such body.
        group: what a work-group computes in OpenCL C; None where there is no such body.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, domain: str, shapes: Any, types: Any
    ) -> None:
        """Make the operation; `operation` says what is legal."""
        self.function, self.name, self.domain = function, name, domain
        self.element: OpenClBody | None = None
        self.group: OpenClGroupBody | None = None
        self.__doc__, self.__name__ = function.__doc__, function.__name__
        self.__module__, self.__qualname__ = function.__module__, function.__qualname__
        self._shapes, self._types = shapes, types
        parameters = inspect.signature(function).parameters.values()
        positional = [
            p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        self.inputs = tuple(p.name for p in positional)
        more = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        least = sum(p.default is p.empty for p in positional)
        self.input_counts = least, None if more else len(positional)
        self.defaults = [p.default for p in positional]
        if callable(shapes):
            self._check_callable(shapes)
        elif not isinstance(shapes, str) or shapes not in ("same", "broadcast"):
            raise ShapeError(
                f"{self.title}: shapes={shapes!r} is no rule; legal: 'same', 'broadcast', or a "
                "function of the inputs' shapes"
            )
        if not isinstance(types, (str, ElementType, tuple, list)) or not types:
            raise ElementTypeError(
                f"{self.title}: types={types!r} is no rule; legal: 'same', an element type, or a "
                "list of these, one for each output"
            )
        self.infer_types(ElementType.f32, self._output_count())
        self.op = self._make_class([p for p in parameters if p.kind is p.KEYWORD_ONLY])

    def __call__(self, *inputs: Any, **attributes: Any) -> Any:
        """Call the function.

        Raises:
            NetworkError: with values of a network, for which `opset.custom` is.
        """
        if any(hasattr(each, "node") and hasattr(each, "desc") for each in inputs):
            raise NetworkError(
                f"{self.title} computes arrays; in a network made in Python write "
                f"opset.custom({self.__name__})(...)"
            )
        return self.function(*inputs, **attributes)

    def __repr__(self) -> str:
        return f"<operation {self.title}>"

    def __reduce__(self) -> str:
        """Let other processes find it by its name, as they do functions."""
        return self.__qualname__

    def make(self, **attributes: Any) -> PythonOperation:
        """Make the operation of a node.

        Raises:
            NetworkError: an attribute lacks, is not known, or is of another type.
        """
        self.check_names(attributes)
        given = {name: tuple(v) if isinstance(v, list) else v for name, v in attributes.items()}
        try:
            return self.op(**given)
        except TypeError:
            lacking = [f.name for f in _fields(self.op) if f.default is table.REQUIRED]
            lacking = [name for name in lacking if name not in given]
            raise NetworkError(
                f"{self.title} needs the attribute {', '.join(lacking)}; give it by keyword"
            ) from None

    def check_names(self, attributes: Iterable[str]) -> None:
        """Check that the function has attributes of these names.

        Raises:
            NetworkError: it has not.
        """
        known = [field.name for field in _fields(self.op) if field.name != LEFT_OUT]
        for name in attributes:
            if name not in known:
                raise NetworkError(
                    f"{self.title} has no attribute {name!r}; its function's parameters by "
                    f"keyword are: {', '.join(known) or 'none'}." + nearest(name, known)
                )

    @property
    def title(self) -> str:
        """Name with the domain."""
        return f"{self.domain}.{self.name}"

    def opencl(
        self,
        function: Callable[..., Any] | None = None,
        *,
        work_groups: WorkGroups | None = None,
        local_size: int | Sequence[int] = 64,
        local: Mapping[str, str] | None = None,
    ) -> Callable[..., Any]:
        """Give the operation a kernel on GPU: an element's, or with `work_groups` a work-group's.

        The body is the text of the decorated function's docstring; attributes go by their own
        names there. An element's body are statements that end in `return`, and the parameters name
        the inputs' elements. It is fused with what stands before and after, works with any layout
        and size, and is compiled with that. Elements of f16 are handed over as float::

            @swish.opencl
            def element(x):
                '''return x / (1 + exp(-beta * x));'''

        A work-group's body is a kernel's: the parameters name the inputs and then the outputs, each
        in row-major order. ``x_at(i)`` reads element i, as float of f16, ``y_set(i, value)`` writes
        one, ``x_size0``, ``x_size1``… are its sizes and ``x_elements`` their product; ``x`` is the
        pointer. Sizes are arguments, so that one program serves all of them::

            @row_sum.opencl(work_groups=lambda x: x[0], local_size=64, local={"part": "float[64]"})
            def group(x, y):
                '''
                const int row = get_group_id(0), lane = get_local_id(0);
                float sum = 0;
                for (int i = lane; i < x_size1; i += 64) sum += x_at(row * x_size1 + i);
                part[lane] = sum;
                barrier(CLK_LOCAL_MEM_FENCE);
                ...
                '''

        Args:
            function: what is decorated.
            work_groups: a function of the inputs' sizes, with the attributes by keyword, that
                returns the number of work-groups, or of those in two or three dimensions.
            local_size: work-items of a group, in as many dimensions.
            local: name → type and number of what a group shares, such as "float[64]".

        Raises:
            NetworkError: the body does not fit the operation, or an argument is not legal; the
                message says what would be.
        """
        if work_groups is None and local is not None:
            raise NetworkError(f"{self.title}: local memory is a work-group's; give work_groups")

        def decorate(given: Callable[..., Any]) -> Callable[..., Any]:
            text = getattr(given, "__doc__", None) or ""
            code = getattr(given, "__code__", None)
            if code is None:
                raise NetworkError(f"{self.title}: .opencl decorates a function, not {given!r}")
            names = tuple(inspect.signature(given).parameters)
            line = code.co_firstlineno + lines_above(code) + len(text) - len(text.lstrip("\n"))
            place = (names, textwrap.dedent(text).strip("\n"), code.co_filename, line)
            if work_groups is None:
                self._check_element(names, text)
                self._check_attributes()
                self.element, self.group = OpenClBody(*place), None
            else:
                sizes, shared = self._check_group(names, text, work_groups, local_size, local or {})
                self._check_attributes()
                self.group = OpenClGroupBody(*place, work_groups, sizes, shared)
                self.element = None
            return given

        return decorate if function is None else decorate(function)

    def _check_attributes(self) -> None:
        if not all(f.type in (int, float, bool) for f in dataclasses.fields(self.op)):
            raise NetworkError(
                f"{self.title}: the OpenCL body has numbers and truth values for attributes only"
            )

    def _check_element(self, names: Sequence[str], text: str) -> None:
        least, most = self.input_counts
        problem = ""
        if callable(self._shapes):
            problem = (
                "computes an element, so that shapes must be 'same' or 'broadcast'; give "
                "work_groups for one that computes anything else"
            )
        elif least != most or len(names) != most:
            problem = (
                f"takes {len(names)} elements where the operation has {most} inputs, all given"
            )
        elif len(names) > MOST_OPENCL_INPUTS:
            problem = f"takes {len(names)} elements; at most {MOST_OPENCL_INPUTS} are possible"
        elif "return" not in text:
            problem = "has no text with a `return` in its docstring"
        if problem:
            raise NetworkError(f"{self.title}: the OpenCL body {problem}")

    def _check_group(
        self,
        names: Sequence[str],
        text: str,
        work_groups: Any,
        local_size: Any,
        local: Mapping[str, str],
    ) -> tuple[tuple[int, ...], dict[str, tuple[str, int]]]:
        """Return the local sizes and the shared memory as numbers."""
        sizes = tuple(local_size) if isinstance(local_size, (tuple, list)) else (local_size,)
        least, most = self.input_counts
        count = self._output_count()
        shared = {}
        problem = ""
        if not callable(work_groups):
            problem = f"work_groups={work_groups!r} is no function of the inputs' sizes"
        elif not 1 <= len(sizes) <= 3 or any(type(n) is not int or n < 1 for n in sizes):
            problem = f"local_size={local_size!r}; legal: one to three numbers from 1"
        elif least != most or (self._counts_outputs() and len(names) != least + count):
            problem = (
                f"its body has {len(names)} parameters where the operation has {most} inputs, all "
                f"given, and {count} outputs"
            )
        elif not text.strip():
            problem = "its body has no text in its docstring"
        for name, said in local.items():
            found = _LOCAL.fullmatch(str(said).strip())
            if found is None or found[1] not in LOCAL_TYPES or not int(found[2]):
                problem = (
                    f"local memory {name!r} is {said!r}; legal: a number of one of "
                    f"{', '.join(LOCAL_TYPES)}, such as 'float[64]'"
                )
                break
            shared[name] = (found[1], int(found[2]))
        taken = [*names, *local, *(f.name for f in dataclasses.fields(self.op))]
        twice = next((name for name in taken if taken.count(name) > 1), None)
        if not problem and twice is not None:
            problem = f"{twice!r} names two things"
        if problem:
            raise NetworkError(f"{self.title}: {problem}")
        return sizes, shared

    def _counts_outputs(self) -> bool:
        """Whether the number of outputs is known before there are shapes."""
        return not callable(self._shapes) or not isinstance(self._types, (str, ElementType))

    def infer_shapes(
        self, shapes: Sequence[Shape | None], op: PythonOperation
    ) -> list[Shape | None]:
        """Return the shapes of the outputs; None for an unknown rank.

        Args:
            shapes: of the inputs that are given.
            op: the operation of a node.
        """
        if self._shapes == "same":
            return [shapes[0]]
        if self._shapes == "broadcast":
            whole: Shape | None = Shape([])
            for shape in shapes:
                whole = broadcast(whole, shape)
            return [whole]
        if any(shape is None for shape in shapes):
            return [None] * self._output_count()
        assert callable(self._shapes)
        try:
            placed = op.placed(shapes, [None] * len(self.defaults))
            answer = self._shapes(*placed, **op.keywords())
        except PolydeviceError:
            raise
        except Exception as error:
            raise ShapeError(f"{self.title}: its function for shapes failed: {error!r}") from error
        several = (
            isinstance(answer, list)
            and len(answer) > 0  # no sizes: a scalar
            and all(isinstance(item, (tuple, list)) for item in answer)
        )
        return [Shape(_sizes(item)) for item in (answer if several else [answer])]

    def infer_types(self, first: ElementType | None, count: int) -> list[ElementType]:
        """Return the element types of so many outputs."""
        rules = self._types
        listed = [rules] * count if isinstance(rules, (str, ElementType)) else list(rules)
        if len(listed) != count:
            raise ElementTypeError(
                f"{self.title}: {len(listed)} types are given for {count} outputs"
            )
        found = []
        for rule in listed:
            if rule == "same":
                if first is None:
                    raise ElementTypeError(f"{self.title}: types='same' needs an input")
                found.append(first)
                continue
            try:
                found.append(ElementType(rule))
            except (ValueError, TypeError):
                legal = ", ".join(kind.value for kind in ElementType)
                raise ElementTypeError(
                    f"{self.title}: type {rule!r} is not known; legal: same, {legal}"
                ) from None
        return found

    def checked(self, answer: Any, stated: TensorDesc) -> Array:
        """Return one answer of the function as the array that its rules promise."""
        array = np.asarray(answer)
        if stated.shape is not None and not stated.shape.admits(Shape(array.shape)):
            raise NetworkError(
                f"{self.title}: its function returns shape {list(array.shape)} where its rule for "
                f"shapes says {stated.shape}"
            )
        if array.dtype != stated.dtype:
            if not np.can_cast(array.dtype, stated.dtype, "same_kind"):
                raise NetworkError(
                    f"{self.title}: its function returns {array.dtype} where its rule for types "
                    f"says {stated.element_type}"
                )
            array = array.astype(stated.dtype)
        return array

    def _output_count(self) -> int:
        return 1 if isinstance(self._types, (str, ElementType)) else len(self._types)

    def _check_callable(self, rule: Callable[..., Any]) -> None:
        """A rule is called with the inputs' shapes and all attributes by keyword."""
        try:
            inspect.signature(rule)
        except (TypeError, ValueError) as error:
            raise ShapeError(f"{self.title}: its function for shapes has no signature") from error

    def _make_class(self, keywords: Sequence[inspect.Parameter]) -> type[PythonOperation]:
        hints = typing.get_type_hints(self.function)
        annotations: dict[str, Any] = {}
        fields: dict[str, Any] = {}
        for parameter in sorted(keywords, key=lambda p: p.default is not p.empty):
            kind = without_none(hints.get(parameter.name, type(parameter.default)))
            inner = (
                typing.get_args(kind)[:1] if typing.get_origin(kind) in (tuple, list) else (kind,)
            )
            if hasattr(PythonOperation, parameter.name) or parameter.name in (
                "definition",
                LEFT_OUT,
            ):
                raise NetworkError(
                    f"{self.title}: {parameter.name!r} cannot be an attribute, since operations "
                    "have something of that name; call it otherwise"
                )
            if inner[0] not in _ATTRIBUTE_KINDS:
                raise NetworkError(
                    f"{self.title}: attribute {parameter.name!r} has the type {kind!r}; legal: "
                    "int, float, str, bool, and tuples of one of them"
                )
            annotations[parameter.name] = tuple[inner[0], ...] if inner[0] is not kind else kind  # type: ignore[valid-type]
            given = parameter.default is not parameter.empty
            default = parameter.default if given else table.REQUIRED
            fields[parameter.name] = attribute(
                default=tuple(default) if isinstance(default, list) else default,
                onnx=parameter.name,
            )
        least, most = self.input_counts
        if least < len(self.defaults) and (most is None or most - least > 1):
            annotations[LEFT_OUT] = tuple[int, ...]
            fields[LEFT_OUT] = attribute(default=())
        body = {
            "__doc__": self.function.__doc__ or f"{self.title}, a function of Python.",
            "__module__": self.function.__module__,
            "__qualname__": self.function.__qualname__,
            "__annotations__": annotations,
            "definition": self,
            **fields,
        }
        made = type(self.name, (PythonOperation,), body)
        return table.operation(self.name, domain=self.domain)(made)


def operation(
    name: str,
    *,
    domain: str = "custom",
    shapes: ShapeRule = "broadcast",
    types: TypeRule = "same",
) -> Callable[[Callable[..., Any]], CustomOperation]:
    """Make an operation of a NumPy function, on every device at once.

    For example::

        @polydevice.operation("Swish", domain="my.company")
        def swish(x, *, beta: float = 1.0):
            return x / (1 + np.exp(-beta * x))

    Model files use it under its name: in ONNX as an operator of the domain, in IR as a layer of
    that type whose version is the domain. Devices compute it on the host until it has an OpenCL
    body (`CustomOperation.opencl`). The function's positional parameters are the inputs, those by
    keyword the attributes, with their types and defaults; it must not change its inputs. Running
    the decorator again for the same function replaces the operation.

    Args:
        name: type of the operation.
        domain: operation set or ONNX domain that it belongs to; not one of polydevice's own.
        shapes: "broadcast": all inputs together, as NumPy does it; "same": that of the first
            input; or a function of the inputs' shapes, with the attributes by keyword, which
            returns the sizes of the output or a list of those of several outputs. A size may be
            a `Dim` when it is not known yet; an input that is left out before others is None.
        types: "same": that of the first input; or an element type such as "f32"; or a list of
            these, one for each output.

    Raises:
        NetworkError: the domain is one of polydevice's own, the operation exists already, or an
            attribute has a type that files cannot hold.
    """
    texts: list[tuple[str, Any]] = [("name", name), ("domain", domain)]
    for what, text in texts:
        if not isinstance(text, str) or not text.isprintable() or (what == "name" and not text):
            raise NetworkError(
                f"the {what} of an operation is a text, not {text!r}; write "
                '@polydevice.operation("MyOp", domain="my.company")'
            )
    if _OWN_DOMAINS.fullmatch(domain):
        raise NetworkError(
            f"domain {domain!r} is not for operations of yours; use a name of your own, such as "
            "'my.company'"
        )

    def make(function: Callable[..., Any]) -> CustomOperation:
        if not inspect.isroutine(function):
            raise NetworkError(f"operation {name!r} is made of a function, not of {function!r}")
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise NetworkError(f"operation {name!r} is made of a function that returns arrays")
        known = table.find_in_domain(domain, name)
        if known is not None and issubclass(known, PythonOperation):
            before = known.definition.function
            if (before.__module__, before.__qualname__) == (
                function.__module__,
                function.__qualname__,
            ):
                table.forget(known)
        if table.is_defined(name, domain):
            by = f" by {known.__module__}.{known.__qualname__}" if known is not None else ""
            raise NetworkError(
                f"operation {name!r} of {domain!r} is defined already{by}; take another name or "
                "domain"
            )
        return CustomOperation(function, name, domain, shapes, types)

    return make


def _fields(cls: type[Op]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(cls)


def _sizes(item: Any) -> Sequence[DimLike | None]:
    return list(item)
