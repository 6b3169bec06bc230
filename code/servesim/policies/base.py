"""What a policy is: a class with one method, ``plan(self, view)``."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import ClassVar

from ..errors import InputError, brief
from ..plan import Plan, View


class Policy:
    """Base class of the built-in policies. Yours need not inherit from it.

    Attributes
    ----------
    knows_output_length : bool
        Declare True to see `Progress.predicted_output`, which no real scheduler sees. Results
        are labelled accordingly.
    reserve_all : bool
        Declare True to give a request all the blocks it will ever need when it joins.
        Needs `knows_output_length`.

    If a policy has an attribute ``token_budget``, the stepper shows each step against it.

    A policy that knows output lengths may also have a method
    ``predict(prompt_len, output_len) -> int``: how many tokens it expects, which is then what
    `Progress.predicted_output` says. Without it the prediction is exact.
    """

    knows_output_length: ClassVar[bool] = False
    reserve_all: ClassVar[bool] = False

    def plan(self, view: View) -> Plan:
        """Decide what to do in the next step."""
        raise NotImplementedError(f"{type(self).__name__} has no method plan(self, view): write it")

    def __repr__(self) -> str:
        options = inspect.signature(type(self)).parameters.values()
        given = [(o.name, getattr(self, o.name)) for o in options if hasattr(self, o.name)]
        defaults = {o.name: o.default for o in options}
        told = ", ".join(f"{name}={value!r}" for name, value in given if value != defaults[name])
        return f"{type(self).__name__}({told})"


def whole_from(least: int, **options: int) -> None:
    """Check that options are whole numbers from `least` up.

    Raises
    ------
    InputError
        Naming the option and its value.
    """
    for name, value in options.items():
        if type(value) is not int or value < least:
            raise InputError(f"{name} must be a whole number, {least} or more, not {brief(value)}")


def at_least(least: int, **options: int | None) -> None:
    """Check options as `whole_from` does; None passes as 'not set'.

    Raises
    ------
    InputError
    """
    whole_from(least, **{name: value for name, value in options.items() if value is not None})


def number_from(least: float, **options: float) -> None:
    """Check that options are finite numbers from `least` up.

    Raises
    ------
    InputError
        Naming the option and its value.
    """
    for name, value in options.items():
        if type(value) not in (int, float) or not least <= value < math.inf:
            raise InputError(f"{name} must be a number, {least:g} or more, not {brief(value)}")


def share(**options: float) -> None:
    """Check that options are numbers from 0 to below 1.

    Raises
    ------
    InputError
        Naming the option and its value.
    """
    for name, value in options.items():
        if type(value) not in (int, float) or not 0 <= value < 1:
            raise InputError(f"{name} must be a share from 0 to below 1, not {brief(value)}")


def one_of(known: Sequence[str], **options: str) -> None:
    """Check that options have one of the known values.

    Raises
    ------
    InputError
        Naming the option, its value and the known ones.
    """
    for name, value in options.items():
        if value not in known:
            raise InputError(f"{name} must be {' or '.join(known)}, not {brief(value)}")
