# loses: room, speed
"""Lets in whoever fits now, and trusts that the others will be short."""

from servesim import Plan

# At most five rows: arrival in ms, prompt tokens, output tokens.
WORKLOAD = [(0, 128, 3), (100, 320, 3)]


class Policy:
    """First come, first served; believes what the cache says."""

    def __init__(self, longest):
        self.longest = longest

    def room(self, view, r):
        """Return the blocks for a prompt and its longest answer."""
        return -(-(r.prompt_len + self.longest) // view.block_size)

    def plan(self, view):
        """Settle with those who have left, and let in whoever has room."""
        free = view.free_blocks
        batch = list(view.running)
        for r in view.waiting:
            if self.room(view, r) > free:
                break
            free -= self.room(view, r)
            batch.append(r)
        return Plan([(r.id, r.missing) for r in batch])
