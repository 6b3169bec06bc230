"""The assignments, one module each, in the order of the book.

To add one: a module here that defines ``ASSIGNMENT``, and its name in `NAMES`.
"""

from __future__ import annotations

import importlib

from ...errors import InputError, brief
from ..assignment import Assignment

NAMES = (
    "warmup",
    "aging",
    "token-budget",
    "preemption",
    "tenants",
    "league",
    "lab-never-fits",
    "lab-prefill-again",
    "lab-leak",
)
"""Names on the command line; a ``-`` in one is a ``_`` in its module's name."""


def find(name: str) -> Assignment:
    """Return an assignment by its name.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if not isinstance(name, str) or name not in NAMES:
        raise InputError(f"unknown assignment {brief(name)}; known are {', '.join(NAMES)}")
    module = importlib.import_module(f".{name.replace('-', '_')}", __name__)
    found: Assignment = module.ASSIGNMENT
    return found
