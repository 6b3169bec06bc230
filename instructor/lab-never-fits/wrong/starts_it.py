# loses: untouched
"""Computes a token of a request that never fits, and then throws it out."""

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

    def hopeless(self, view, r):
        """Tell whether a request never fits."""
        return self.room(view, r) > view.total_blocks

    def plan(self, view):
        """Let in from the head of the queue whoever has room."""
        plan = Plan(preempted=[r.id for r in view.running if self.hopeless(view, r)])
        batch = [r for r in view.running if not self.hopeless(view, r)]
        free = view.total_blocks - sum(self.room(view, r) for r in batch)
        for r in view.waiting:
            if self.hopeless(view, r):
                plan.scheduled += [] if r.preemptions else [(r.id, 1)]
                continue
            if self.room(view, r) > free:
                break
            free -= self.room(view, r)
            batch.append(r)
        plan.scheduled += [(r.id, r.missing) for r in batch]
        return plan
