# loses: room, oldest, needed, speed
"""Serves one request at a time, so that nobody ever has to go."""

from servesim import Plan


class Policy:
    """First come, first served, each of them alone."""

    def plan(self, view):
        """Return the next step's plan: who computes, and whom to throw out."""
        batch = [*view.running, *view.waiting][:1]
        return Plan([(r.id, r.missing) for r in batch])
