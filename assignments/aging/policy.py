"""Aging: urgent requests first, until somebody has waited long enough.

A smaller `priority` is more urgent. Times in the view are nanoseconds.
"""

from servesim import Plan


class Policy:
    """Let in whoever is most urgent, with patience for those who have waited."""

    def __init__(self, slots):
        self.slots = slots

    def plan(self, view):
        """Return the next step's plan: (id, tokens) pairs for those who run."""
        raise NotImplementedError("return a Plan: everyone who runs, and who joins them")
