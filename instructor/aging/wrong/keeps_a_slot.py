# loses: busy
"""Keeps the last slot for an urgent request that may come."""

from servesim import Plan


class Policy:
    """Let in whoever is most urgent, with patience for those who have waited."""

    def __init__(self, slots):
        self.slots = slots

    def plan(self, view):
        """Return the next step's plan: (id, tokens) pairs for those who run."""
        second = 1_000_000_000

        def turn(r):
            """Every step of urgency is worth a head start of 1.2 seconds."""
            return r.arrival_ns + r.priority * 1.2 * second

        queue = sorted(view.waiting, key=turn)
        free = self.slots - len(view.running)
        if self.slots > 1 and not any(r.priority == 0 for r in view.waiting):
            free -= 1
        batch = list(view.running) + queue[: max(0, free)]
        return Plan([(r.id, r.missing) for r in batch])
