"""Assignments and their grader: ``python -m servesim.grade``.

An **assignment** is:

``code/servesim/grade/assignments/NAME.py``
    Defines ``ASSIGNMENT``, an `Assignment`: rules with points, and the public cases. Its name
    stands in `servesim.grade.assignments.NAMES`. It ships with the book, so no solution may be
    read out of it.
``instructor/NAME/solution.py``
    The reference solution, with a docstring that says what to write. What a student writes stands
    between ``# BEGIN SOLUTION`` and ``# END SOLUTION``; a comment ``# STARTER: ...`` in between
    becomes a line of the starter. It scores full.
``assignments/NAME/policy.py``
    The starter: the solution with those parts left out (``release`` writes it, a test compares).
    It scores 0, and its error says what is missing.
``instructor/NAME/wrong/*.py``
    Wrong solutions. The first line of each says what it loses: ``# loses: RULE[, RULE]``.
``instructor/NAME/right/*.py``
    Other correct solutions, unlike the reference. Each scores full: the rules must be fair.
``instructor/NAME/hidden.py`` and ``instructor/NAME/seed.txt``
    ``cases(seed) -> list[Case]``: hidden cases, made from the secret seed. A case called
    ``"busy#1"`` is judged by the rules of the public case ``"busy"``.

A student's class (``Policy`` by default) is built once for each case, with the case's options as
keyword arguments, and has the method ``plan(self, view)``. It may import the standard library and
the names in `servesim.grade.source.ALLOWED` from servesim. Importing or copying a shipped policy,
or declaring ``knows_output_length``, scores 0 with the reason.

Of a student's file each case makes one run. A **rule** is an `Invariant`, whose ``check(run)``
returns None or ``run.fail("what happened, with numbers", step=.., request=..)``, or a
`Performance`, which gives points by the distance to a bound and to the reference's run. An
invariant is judged on one run at a time; when it fails, the grader makes the workload smaller
while the same rule still fails, so a ``check`` must not need more requests than those at fault.
A run that breaks off (an exception, a plan that the engine refuses, no end within ``max_steps``)
loses all rules of its case, but see ``Invariant.engine_rules``. A `FileRule` judges the text of the
file itself, once, without running it: a workload or a written answer that is handed in with it.
"""

from .assignment import (
    Assignment,
    Case,
    Failure,
    FileRule,
    Invariant,
    Performance,
    Rule,
    Run,
    literal,
)
from .assignments import NAMES, find
from .checking import Report, check

__all__ = [
    "NAMES",
    "Assignment",
    "Case",
    "Failure",
    "FileRule",
    "Invariant",
    "Performance",
    "Report",
    "Rule",
    "Run",
    "check",
    "find",
    "literal",
]
