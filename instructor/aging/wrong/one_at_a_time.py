# loses: busy, urgent, speed
"""Serves one request at a time, whoever is urgent."""

from servesim import Plan


class Policy:
    """First come, first served, each of them alone."""

    def __init__(self, slots):
        self.slots = slots

    def plan(self, view):
        """Return the next step's plan: (id, tokens) pairs for those who run."""
        batch = [*view.running, *view.waiting][:1]
        return Plan([(r.id, r.missing) for r in batch])
