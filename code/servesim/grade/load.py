"""Loading a student's file. Also used in the child process, so it imports next to nothing."""

from __future__ import annotations

import linecache
import sys
from types import ModuleType
from typing import Any

MODULE = "_policy"
"""Name of the module that a student's file becomes."""


ASKS = ("knows_output_length", "reserve_all")
"""Attributes by which a shipped policy asks to be told the output lengths."""


def asks_for_lengths(policy: object) -> str:
    """Say if a policy asks for what no scheduler knows; nothing if it does not."""
    for name in ASKS:
        if getattr(policy, name, False):
            return f"the policy declares {name}: no policy is told the output lengths"
    return ""


class NoClassError(Exception):
    """The file has no usable class of the wanted name."""


def load(text: str, file: str, class_name: str) -> type[Any]:
    """Run a student's file as a fresh module, and return its class.

    Each call makes a new module, so that nothing is carried over from case to case.

    Parameters
    ----------
    text : str
        The file's text, run as it is: nothing is cached beside it.
    file : str
        Its name, for tracebacks and breakpoints.
    class_name : str

    Raises
    ------
    NoClassError
        If there is no class of that name with a method ``plan``.
    BaseException
        Whatever the file raises.
    """
    module = ModuleType(MODULE)
    module.__file__ = file
    sys.modules[MODULE] = module  # dataclasses look here
    lines = text.splitlines(keepends=True)
    linecache.cache[file] = (len(text), None, lines, file)
    exec(compile(text, file, "exec", dont_inherit=True), module.__dict__)
    found = vars(module).get(class_name)
    if not isinstance(found, type):
        raise NoClassError(f"there is no class {class_name}")
    if not callable(getattr(found, "plan", None)):
        raise NoClassError(f"class {class_name} has no method plan(self, view)")
    return found
