"""Warm-up: serve in order of arrival, with at most `slots` requests in the batch."""

from servesim import Plan


class Policy:
    """First come, first served."""

    def __init__(self, slots):
        self.slots = slots

    def plan(self, view):
        """Return the next step's plan: (id, tokens) pairs for those who run."""
        # BEGIN SOLUTION
        # STARTER: raise NotImplementedError("return a Plan: whom to schedule, how many tokens each")
        free = self.slots - len(view.running)
        batch = list(view.running) + view.waiting[:free]
        return Plan([(r.id, r.missing) for r in batch])
        # END SOLUTION
