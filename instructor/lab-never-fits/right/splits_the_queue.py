"""Sorts out those that never fit before it looks at the queue."""

from servesim import Plan

# At most five rows: arrival in ms, prompt tokens, output tokens.
WORKLOAD = [(0, 10, 3), (1, 449, 1), (2, 10, 3)]


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
        hopeful = [r for r in view.waiting if self.room(view, r) <= view.total_blocks]
        for r in hopeful:
            if self.room(view, r) > free:
                break
            free -= self.room(view, r)
            batch.append(r)
        return Plan([(r.id, r.missing) for r in batch])
