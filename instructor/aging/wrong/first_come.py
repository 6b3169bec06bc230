# loses: urgent
"""First come, first served: urgency does not count."""

from servesim import Plan


class Policy:
    """Let in whoever is most urgent, with patience for those who have waited."""

    def __init__(self, slots):
        self.slots = slots

    def plan(self, view):
        """Return the next step's plan: (id, tokens) pairs for those who run."""

        def turn(r):
            """Go by arrival."""
            return r.arrival_ns

        queue = sorted(view.waiting, key=turn)
        batch = list(view.running) + queue[: self.slots - len(view.running)]
        return Plan([(r.id, r.missing) for r in batch])
