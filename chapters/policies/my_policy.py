"""A policy of your own: change it, save it, and load it again."""

import servesim as ss


class MyPolicy:
    """Fill the free slots in order of arrival. A line to change is marked."""

    def __init__(self, slots=16):
        self.slots = slots  # my_policy.py:MyPolicy:slots=8 asks for another number

    def plan(self, view):
        """Say who takes part in the next step, and with how many tokens each."""
        # A request r has, among others: r.id, r.arrival_ns, r.prompt_len, r.produced (tokens it
        # has made) and r.missing (tokens it can be given now: its whole prompt, or one more).
        queue = sorted(view.waiting, key=lambda r: r.arrival_ns)  # try r.prompt_len
        free = self.slots - len(view.running)
        batch = [*view.running, *queue[:free]]
        return ss.Plan([(r.id, r.missing) for r in batch])
