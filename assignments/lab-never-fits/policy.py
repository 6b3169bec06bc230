"""Bug lab: a policy that works for weeks, until nobody is served any more.

Each request is let in with room for its prompt and for an answer of `longest` tokens, so that
nobody has to be thrown out. Find a small workload on which that goes wrong, write it down in
`WORKLOAD`, and mend the policy.
"""

from servesim import Plan

# At most five rows: arrival in ms, prompt tokens, output tokens.
WORKLOAD = []


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
                break
            free -= self.room(view, r)
            batch.append(r)
        return Plan([(r.id, r.missing) for r in batch])
