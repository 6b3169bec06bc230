# loses: order
"""Takes in the latest arrival first."""

from servesim import Plan


class Policy:
    """Last come, first served."""

    def __init__(self, slots):
        self.slots = slots

    def plan(self, view):
        """Return the next step's plan."""
        free = self.slots - len(view.running)
        batch = list(view.running) + list(view.waiting)[::-1][:free]
        return Plan([(r.id, r.missing) for r in batch])
