# loses: order
"""Of those that are equally urgent the last to come goes first."""

from servesim import Plan


class Policy:
    """Let in whoever is most urgent, with patience for those who have waited."""

    def __init__(self, slots):
        self.slots = slots

    def plan(self, view):
        """Return the next step's plan: (id, tokens) pairs for those who run."""
        second = 1_000_000_000

        def turn(r):
            """Put the overdue first."""
            overdue = view.clock_ns - r.arrival_ns >= 2 * second
            return (0, 0, r.arrival_ns) if overdue else (1, r.priority, -r.arrival_ns)

        queue = sorted(view.waiting, key=turn)
        batch = list(view.running) + queue[: self.slots - len(view.running)]
        return Plan([(r.id, r.missing) for r in batch])
