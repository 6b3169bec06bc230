# loses: progress, ttft
"""Serves one request at a time, so that no decode ever waits for a prompt."""

from servesim import Plan


class Policy:
    """First come, first served, each of them alone."""

    def __init__(self, target_ms):
        self.target_ms = target_ms

    def plan(self, view):
        """Return the next step's plan: (id, tokens) pairs for those who run."""
        batch = [*view.running, *view.waiting][:1]
        return Plan([(r.id, r.missing) for r in batch])
