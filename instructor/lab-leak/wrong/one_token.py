# loses: find
"""Hands in answers of one token: they are done before their blocks are looked at."""

from servesim import Plan

# At most five rows: arrival in ms, prompt tokens, output tokens.
WORKLOAD = [(0, 128, 1), (100, 320, 1)]


class Policy:
    """First come, first served; keeps its own books of the blocks that are promised."""

    def __init__(self, longest):
        self.longest = longest
        self.free = None  # blocks that are promised to nobody
        self.held = {}  # blocks by request, of those who are in the batch

    def room(self, view, r):
        """Return the blocks for a prompt and its longest answer."""
        return -(-(r.prompt_len + self.longest) // view.block_size)

    def plan(self, view):
        """Settle with those who have left, and let in whoever has room."""
        if self.free is None:
            self.free = view.total_blocks
        running = {r.id: self.room(view, r) for r in view.running}  # as it was promised
        for rid in [rid for rid in self.held if rid not in running]:
            self.free += self.held.pop(rid)
        self.held.update(running)
        batch = list(view.running)
        for r in view.waiting:
            if self.room(view, r) > self.free:
                break
            self.free -= self.room(view, r)
            self.held[r.id] = self.room(view, r)
            batch.append(r)
        return Plan([(r.id, r.missing) for r in batch])
