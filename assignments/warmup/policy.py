"""Warm-up: serve in order of arrival, with at most `slots` requests in the batch."""

from servesim import Plan


class Policy:
    """First come, first served."""

    def __init__(self, slots):
        self.slots = slots

    def plan(self, view):
        """Return the next step's plan: (id, tokens) pairs for those who run."""
        raise NotImplementedError("return a Plan: whom to schedule, how many tokens each")
