"""What a policy is: a class with one method, ``plan(self, view)``."""

from __future__ import annotations

import inspect
from typing import ClassVar

from ..plan import Plan, View


class Policy:
    """Base class of the built-in policies. Yours need not inherit from it.

    Attributes
    ----------
    knows_output_length : bool
        Declare True to see `Progress.predicted_output`, which no real scheduler sees. Results
        are labeled accordingly.
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
