# loses: aging
"""Lets urgency count for four seconds a level."""

from servesim import Plan


class Policy:
    """Let in whoever is most urgent, with patience for those who have waited."""

    def __init__(self, slots):
        self.slots = slots

    def plan(self, view):
        """Return the next step's plan: (id, tokens) pairs for those who run."""
        second = 1_000_000_000

        def turn(r):
            """Every step of urgency is worth a head start of 4 seconds."""
            return r.arrival_ns + r.priority * 4 * second

        queue = sorted(view.waiting, key=turn)
        batch = list(view.running) + queue[: self.slots - len(view.running)]
        return Plan([(r.id, r.missing) for r in batch])
