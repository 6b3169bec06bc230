# loses: slots
"""Counts one slot too many."""

from servesim import Plan


class Policy:
    """First come, first served."""

    def __init__(self, slots):
        self.slots = slots

    def plan(self, view):
        """Return the next step's plan."""
        free = self.slots + 1 - len(view.running)
        batch = list(view.running) + view.waiting[:free]
        return Plan([(r.id, r.missing) for r in batch])
