"""Small changes to a source file, one at a time: what `tools/mutation.py` tries the tests on.

The changes are those that tell most per mutant: another operator at each place, a constant off by
one, a condition that is always true or never, half of an ``and``, a statement left out.
Annotations, docstrings and the wording of messages are left alone, for no behavior hangs on them;
so are decorators and imports, whose change no program survives.
"""

from __future__ import annotations

import ast
import copy
import difflib
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

SWAPS: dict[type, tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitOr: ("|", "&"),
    ast.BitAnd: ("&", "|"),
    ast.BitXor: ("^", "|"),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),  # codespell:ignore notin
}
TWINS = {"min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor"}
STATEMENTS = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete, ast.Raise)
LISTS_OF_NAMES = {"__slots__", "__all__"}  # they only say what is there


Place = ast.expr | ast.stmt
Change = tuple[str, Place | tuple[Place, Place], str]


class Mutant(NamedTuple):
    """One change.

    Attributes
    ----------
    function : str or None
        Qualified name of the outermost function that it is in; None if it acts on import.
    top, line : int
        Where that function starts, and where the change does; from 1 on.
    what : str
        What it does.
    start, end : int
        What it replaces in the source, in bytes.
    new : str
        What stands there instead.
    """

    function: str | None
    top: int
    line: int
    what: str
    start: int
    end: int
    new: str

    def apply(self, source: str) -> str:
        """Return the source with the change in it; every later line keeps its number."""
        data = source.encode()
        lost = data[self.start : self.end].count(b"\n") - self.new.count("\n")
        # Inside brackets and after a statement, empty lines mean nothing.
        padded = self.new.removesuffix(")") + "\n" * lost + ")" * self.new.endswith(")")
        return (data[: self.start] + padded.encode() + data[self.end :]).decode()

    def diff(self, source: str, path: str) -> str:
        """Return the change as a diff."""
        data = source.encode()
        changed = (data[: self.start] + self.new.encode() + data[self.end :]).decode()
        lines = source.splitlines(), changed.splitlines()
        return "\n".join(difflib.unified_diff(*lines, path, path, lineterm="", n=2))


def mutants(source: str) -> list[Mutant]:
    """Return all changes to a source, in order."""
    data = source.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: Place) -> tuple[int, int]:
        first = starts[node.lineno - 1] + node.col_offset
        return first, starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    found = set()
    for node, function, top in _walk(ast.parse(source), None, 0, ""):
        for what, where, new in _changes(node, function is not None):
            if isinstance(where, tuple):  # an operator stands between two operands
                (_, start), (end, _) = map(span, where)
                old, new = new.split(" to ")
                new = data[start:end].decode().replace(old, new, 1)
            else:
                start, end = span(where)
            found.add(Mutant(function, top, node.lineno, what, start, end, new))
    return sorted(found, key=lambda m: (m.start, m.end, m.what))


def _walk(
    node: ast.AST, function: str | None, top: int, scope: str
) -> Iterator[tuple[Place, str | None, int]]:
    """Yield all nodes that may be changed, each with the function that it is in."""
    for name, value in ast.iter_fields(node):
        if name in ("decorator_list", "annotation", "returns", "bases"):
            continue
        inside, start = function, top
        if isinstance(node, ast.FunctionDef) and name == "body" and function is None:
            inside, start = scope.removesuffix("."), node.lineno  # not its defaults
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _left_alone(child):
                continue
            if isinstance(child, ast.expr | ast.stmt):
                yield child, inside, start
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                yield from _walk(child, inside, start, f"{scope}{child.name}.")
            else:
                yield from _walk(child, inside, start, scope)


def _left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.JoinedStr():
            return True
        case ast.Expr(value=ast.Constant()):  # a docstring
            return True
        case ast.Attribute(value=ast.Constant(), attr="join"):  # commas between names
            return True
        case ast.AnnAssign(value=None) | ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) if name in LISTS_OF_NAMES:
            return True
        case ast.Call(func=ast.Name(id=name)) if name.endswith(("Error", "TypeVar")):
            return True
        case ast.Tuple(elts=cells) if sum(isinstance(c, ast.Constant) for c in cells) > 8:
            return True  # a table of measured numbers
    return False


def _changes(node: Place, in_function: bool) -> Iterator[Change]:
    """Yield what may be changed at a node: what it is, where, and what stands there instead."""
    match node:
        case ast.BinOp(op=op) if type(op) in SWAPS:
            yield _swap(op, node.left, node.right)
        case ast.Compare():
            for (left, right), comparison in zip(
                pairwise([node.left, *node.comparators]), node.ops, strict=True
            ):
                yield _swap(comparison, left, right)
        case ast.BoolOp(values=values):
            for i, value in enumerate(values):
                rest = [*values[:i], *values[i + 1 :]]
                new = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
                yield f"without `{ast.unparse(value)}`", node, f"({ast.unparse(new)})"
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            sign = "not" if isinstance(node.op, ast.Not) else "-"
            yield f"without `{sign}`", node, f"({ast.unparse(node.operand)})"
        case ast.If(test=test) | ast.IfExp(test=test):
            yield "always", test, "(True)"
            yield "never", test, "(False)"
        case ast.While(test=test):
            yield "never", test, "(False)"
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            for generator in node.generators:
                for test in generator.ifs:
                    yield "always", test, "(True)"
        case ast.Constant(value=bool(value)):
            yield f"{value} to {not value}", node, str(not value)
        case ast.Constant(value=int(value)):
            for other in (value + 1, value - 1):
                yield f"{value} to {other}", node, f"({other})"
        case ast.Constant(value=float(value)):
            yield f"{value} to {value + 1}", node, str(value + 1)
        case ast.Constant(value=str(value)):
            yield f"{value!r} to another text", node, repr("" if value else "x")
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in TWINS:
            new = copy.copy(node)
            setattr(new, "id" if isinstance(node, ast.Name) else "attr", TWINS[name])
            yield f"{name} to {TWINS[name]}", node, ast.unparse(new)
        case ast.Break():
            yield "break to continue", node, "continue"
        case ast.Continue():
            yield "continue to break", node, "break"
        case ast.Return(value=value) if value and not isinstance(value, ast.Constant):
            yield "returns None", node, "return None"
        case ast.AugAssign(op=op) if type(op) in SWAPS:
            yield _swap(op, node.target, node.value)
    if in_function and isinstance(node, STATEMENTS):
        yield "left out", node, "pass"


def _swap(op: ast.AST, left: Place, right: Place) -> Change:
    old, new = SWAPS[type(op)]
    return f"{old} to {new}", (left, right), f"{old} to {new}"
