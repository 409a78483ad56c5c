"""Small faults that a programmer could have made, one place in a source file each.

The kinds are those that suffice to stand for all others (Offutt and others, "An experimental
determination of sufficient mutant operators", 1996), less those that change no behaviour:
messages, annotations and docstrings are left alone.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Fault:
    """One place of a file, and what stands there instead.

    Attributes:
        path: the file, relative to the repository.
        first: number of the first line of the statement.
        last: number of its last line; of a block's head for ``if``, ``while`` and the like.
        span: begin and end in the bytes of the file.
        before: source that is replaced.
        after: source that replaces it.
    """

    path: Path
    first: int
    last: int
    span: tuple[int, int]
    before: str
    after: str

    def apply(self, source: bytes) -> bytes:
        """Return a file's content with the fault."""
        begin, end = self.span
        return source[:begin] + self.after.encode() + source[end:]

    def __str__(self) -> str:
        """Return path, line, and the change on one line."""
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.path}:{self.first}: {before}  ->  {after}"


def faults_of(root: Path, path: Path) -> list[Fault]:
    """Return every fault that can be put into a file."""
    source = (root / path).read_bytes()
    tree = ast.parse(source)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for statement in _statements(tree.body):
        first, last = _extent(statement)
        for node, new in _changes(statement):
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            before = source[begin:end].decode()
            after = ast.unparse(new)
            if isinstance(node, ast.expr):
                after = f"({after})"
            found.append(Fault(path, first, last, (begin, end), before, after))
    return found


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body and of all blocks in it, less those for type checkers."""
    for statement in body:
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            continue
        yield statement
        for field in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, field, []))
        for block in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from _statements(block.body)


def _extent(statement: ast.stmt) -> tuple[int, int]:
    body = getattr(statement, "body", None)
    last = body[0].lineno - 1 if body else statement.end_lineno or statement.lineno
    return statement.lineno, max(statement.lineno, last)


def _changes(statement: ast.stmt) -> Iterator[tuple[ast.stmt | ast.expr, ast.AST]]:
    """Yield places of one statement, without the blocks in it, and what to put there."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return  # heads: names and annotations
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.Assert)):
        return
    if isinstance(statement, ast.Raise) or (
        isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant)
    ):
        yield statement, ast.Pass()
    if isinstance(statement, ast.Break):
        yield statement, ast.Continue()
    if isinstance(statement, ast.Raise):
        return
    for expression in _own_expressions(statement):
        yield from _in_expression(expression)


def _own_expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    for name, value in ast.iter_fields(statement):
        if name in {"annotation", "handlers", "cases", "body", "orelse", "finalbody"}:
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.expr):
                yield item
            elif isinstance(item, ast.withitem):
                yield item.context_expr


def _in_expression(node: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Call) and _only_tells(node)):
        return
    if (new := _changed(node)) is not None:
        yield node, new
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from _in_expression(child)
        elif isinstance(child, ast.comprehension):
            for part in (child.iter, *child.ifs):
                yield from _in_expression(part)
        elif isinstance(child, ast.keyword):
            yield from _in_expression(child.value)


def _only_tells(call: ast.Call) -> bool:
    """Whether a call makes a message: of logging, or an exception."""
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    return name.startswith(("log.", "logger.", "_log.")) or last.endswith(("Error", "warn"))


def _changed(node: ast.expr) -> ast.expr | None:
    """Return an expression with one fault at its top; None where none fits."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in _OPERATORS:
        new.ops[0] = _OPERATORS[type(new.ops[0])]()  # type: ignore[assignment]
    elif isinstance(new, (ast.BinOp, ast.BoolOp)) and type(new.op) in _OPERATORS:
        if any(
            isinstance(n, (ast.Constant, ast.JoinedStr)) and _is_text(n) for n in _operands(new)
        ):
            return None
        new.op = _OPERATORS[type(new.op)]()  # type: ignore[assignment]
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not):
        return new.operand
    elif isinstance(new, ast.IfExp):
        new.body, new.orelse = new.orelse, new.body
    elif isinstance(new, ast.Call) and isinstance(new.func, ast.Name) and new.func.id in _CALLS:
        new.func.id = _CALLS[new.func.id]
    elif isinstance(new, ast.Constant) and isinstance(new.value, bool):
        new.value = not new.value
    elif isinstance(new, ast.Constant) and isinstance(new.value, (int, float)):
        new.value += 1
    else:
        return None
    return new


def _operands(node: ast.BinOp | ast.BoolOp) -> list[ast.expr]:
    return node.values if isinstance(node, ast.BoolOp) else [node.left, node.right]


def _is_text(node: ast.Constant | ast.JoinedStr) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(node.value, (str, bytes))
