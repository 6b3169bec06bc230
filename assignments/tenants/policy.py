"""Tenants: share slots and tokens between two tenants, and keep chat's promise.

`r.tenant` says whose request it is. Slots are not all that they share: each step has only so
many tokens before it gets long.
"""

from servesim import Plan


class Policy:
    """Whoever has got fewer tokens so far goes first."""

    def __init__(self, slots):
        self.slots = slots

    def plan(self, view):
        """Return the next step's plan: a token for each decode, then prompts."""
        raise NotImplementedError("return a Plan: a token for each decode, then prompts")
