# loses: aging
"""Puts those who have waited for three seconds first, and sorts them by priority as well."""

from servesim import Plan


class Policy:
    """Let in whoever is most urgent, with patience for those who have waited."""

    def __init__(self, slots):
        self.slots = slots

    def plan(self, view):
        """Return the next step's plan: (id, tokens) pairs for those who run."""

        def turn(r):
            late = view.clock_ns - r.arrival_ns > 3_000_000_000
            return not late, r.priority, r.arrival_ns

        queue = sorted(view.waiting, key=turn)
        batch = list(view.running) + queue[: self.slots - len(view.running)]
        return Plan([(r.id, r.missing) for r in batch])
