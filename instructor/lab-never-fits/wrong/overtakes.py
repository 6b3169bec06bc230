# loses: order
"""Passes over whoever has no room now."""

from servesim import Plan

# At most five rows: arrival in ms, prompt tokens, output tokens.
WORKLOAD = [(0, 600, 5), (10, 40, 5)]


class Policy:
    """First come, first served, each with room for its longest answer."""

    def __init__(self, longest):
        self.longest = longest

    def room(self, view, r):
        """Return the blocks for a prompt and its longest answer."""
        return -(-(r.prompt_len + self.longest) // view.block_size)

    def plan(self, view):
        """Let in from the head of the queue whoever has room."""
        batch = list(view.running)
        free = view.total_blocks - sum(self.room(view, r) for r in batch)
        for r in view.waiting:
            if self.room(view, r) > free:
                continue
            free -= self.room(view, r)
            batch.append(r)
        return Plan([(r.id, r.missing) for r in batch])
