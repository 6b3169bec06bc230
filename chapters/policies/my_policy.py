"""A policy of your own: change it, save it, and load it again."""

import servesim as ss


class MyPolicy:
    """Fill the free slots in order of arrival. A line to change is marked."""

    def __init__(self, slots=16):
        self.slots = slots  # MyPolicy:slots=8 asks for another number

    def plan(self, view):
        """Say who takes part in the next step, with how many tokens."""
        # A request r has, among others: r.id, r.arrival_ns, r.prompt_len,
        # r.produced (tokens that it has made) and r.missing (tokens that it
        # can be given now: its whole prompt, or one more).
        # The line to change: try r.prompt_len.
        queue = sorted(view.waiting, key=lambda r: r.arrival_ns)
        free = self.slots - len(view.running)
        batch = [*view.running, *queue[:free]]
        return ss.Plan([(r.id, r.missing) for r in batch])
