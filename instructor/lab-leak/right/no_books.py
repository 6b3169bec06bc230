"""Keeps no books: what is promised follows from who runs."""

from servesim import Plan

# At most five rows: arrival in ms, prompt tokens, output tokens.
WORKLOAD = [(0, 16, 2), (0, 16, 2), (0, 16, 2), (500, 200, 2)]


class Policy:
    """First come, first served; counts what is promised before every step."""

    def __init__(self, longest):
        self.longest = longest

    def room(self, view, r):
        """Return the blocks for a prompt and its longest answer."""
        return -(-(r.prompt_len + self.longest) // view.block_size)

    def plan(self, view):
        """Settle with those who have left, and let in whoever has room."""
        free = view.total_blocks - sum(self.room(view, r) for r in view.running)
        batch = list(view.running)
        for r in view.waiting:
            if self.room(view, r) > free:
                break
            free -= self.room(view, r)
            batch.append(r)
        return Plan([(r.id, r.missing) for r in batch])
