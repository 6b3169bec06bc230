"""What a student's file may hold, seen without running it."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from ..checks import file_name
from ..errors import InputError
from ..plan import Plan, View
from ..policies import BUILT_IN
from ..request import Progress
from .load import ASKS

ALLOWED = ("Plan", "View", "Progress")
"""Names that a policy may import from servesim."""

MOST_BYTES = 200_000
NOTEBOOK = ".ipynb"
COPIED = 0.8
"""Share of a shipped policy's code that makes a file a copy of it."""

RUN = 12
"""Nodes of a syntax tree in a row that must be equal to count towards a copy."""


class Refused(Exception):
    """A submission that scores 0, and the reason."""


def read(file: str | Path) -> str:
    """Return the text of a student's file.

    Raises
    ------
    InputError
        If there is no such file.
    Refused
        If it is no Python text.
    """
    file_name(file=file)
    path = Path(file)
    if path.suffix == NOTEBOOK and path.is_file():
        raise Refused("the file is a notebook; hand in the Python file, policy.py")
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; name the file to check") from None
    if len(data) > MOST_BYTES:
        raise Refused(f"the file has more than {MOST_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refused("the file is not UTF-8 text") from None
    if not text.strip():
        raise Refused("the file is empty")
    return text


def check(text: str, class_name: str) -> None:
    """Refuse a file that cannot be judged, or that hands in what was shipped.

    Raises
    ------
    Refused
    """
    try:
        _check(text, class_name)
    except (RecursionError, MemoryError):
        raise Refused("the file is nested too deeply to be read") from None


def _check(text: str, class_name: str) -> None:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        place = f" in line {error.lineno}" if error.lineno else ""
        raise Refused(f"syntax error{place}: {error.msg}") from None
    except ValueError as error:  # a zero byte, say
        raise Refused(f"the file cannot be read as Python: {error}") from None
    for reason in (*_foreign(tree), *_told(tree)):
        raise Refused(reason)
    if name := copied_from(tree):
        raise Refused(f"the code is a copy of the shipped policy {name}: write your own")
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    stored = (n for n in ast.walk(tree) if isinstance(n, ast.Name))
    defined = {n.id for n in stored if isinstance(n.ctx, ast.Store)}
    if class_name not in names and class_name not in defined:
        has = f"it has {', '.join(names)}" if names else "it has none"
        raise Refused(f"there is no class {class_name}; {has}")


def _foreign(tree: ast.AST) -> Iterator[str]:
    """Yield a reason for everything that is imported and may not be."""
    ours = {"servesim"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            ours |= {a.asname for a in node.names if a.asname and a.name == "servesim"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            name = "." * node.level + (node.module or "")
            if name == "servesim":
                for alias in node.names:
                    yield from _name(alias.name, node.lineno)
            else:
                yield from _module(name, node.lineno)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in ours:
                yield from _name(node.attr, node.lineno)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(r"servesim(\.\w+)+", node.value)
        ):
            yield from _module(node.value, node.lineno)


def _module(name: str, line: int) -> Iterator[str]:
    root = name.partition(".")[0]
    if name == "servesim" or root in sys.stdlib_module_names:
        return
    if root == "servesim":
        yield from _name(name.partition(".")[2], line)
    else:
        yield (
            f"line {line} imports {name}: a policy may import the standard library and "
            f"{', '.join(ALLOWED)} from servesim"
        )


def _name(name: str, line: int) -> Iterator[str]:
    root = name.partition(".")[0]
    if root == "policies" or root in {kind.__name__ for kind in BUILT_IN.values()}:
        yield f"line {line} uses servesim.{name}: a shipped policy scores 0, write your own"
    elif root not in ALLOWED:
        yield f"line {line} uses servesim.{name}: a policy may use only {', '.join(ALLOWED)}"


def _told(tree: ast.AST) -> Iterator[str]:
    """Yield a reason if the policy wants to be told what no scheduler knows."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name in ASKS:
                yield (
                    f"line {node.lineno} sets {name}: no policy is told the output lengths in an "
                    "assignment"
                )


# -- copies -------------------------------------------------------------------------------------

_API = frozenset(
    name for kind in (Plan, View, Progress) for name in dir(kind) if not name.startswith("_")
)


def copied_from(tree: ast.AST) -> str | None:
    """Return the name of the shipped policy that a file repeats, if it does.

    Compared are the syntax trees, without docstrings, annotations and names of one's own: to
    rename things or to move lines apart changes nothing. What counts is how much of the shipped
    policy lies in stretches of `RUN` nodes that the file has too.
    """
    theirs = list(_skeleton(tree))
    known = {tuple(theirs[i : i + RUN]) for i in range(len(theirs) - RUN + 1)}
    for name, ours in _shipped():
        same: set[int] = set()
        for i in range(len(ours) - RUN + 1):
            if tuple(ours[i : i + RUN]) in known:
                same.update(range(i, i + RUN))
        if len(same) >= COPIED * len(ours):
            return name
    return None


@functools.cache
def _shipped() -> list[tuple[str, list[str]]]:
    """Return the classes of the shipped policies as skeletons, the longest first."""
    found = []
    for path in sorted((Path(__file__).parent.parent / "policies").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name in {
                kind.__name__ for kind in BUILT_IN.values()
            }:
                skeleton = list(_skeleton(node))
                if len(skeleton) >= 8 * RUN:  # less is what anyone would write
                    found.append((node.name, skeleton))
    return sorted(found, key=lambda pair: -len(pair[1]))


def _skeleton(node: ast.AST) -> Iterator[str]:
    """Yield the kinds of a syntax tree's nodes, with those names that nobody can choose."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    if isinstance(node, ast.arg | ast.expr_context | ast.alias | ast.Import | ast.ImportFrom):
        return
    label = type(node).__name__
    if isinstance(node, ast.Attribute) and node.attr in _API:
        label += "." + node.attr
    if isinstance(node, ast.keyword) and node.arg in _API:
        label += "." + str(node.arg)
    yield label
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _skeleton(child)
