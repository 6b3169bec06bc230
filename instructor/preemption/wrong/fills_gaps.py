# loses: oldest, order, waste
"""Throws out the last to join, and lets in whoever finds room."""

from servesim import Plan


class Policy:
    """First come, first served; when blocks run out the last to join goes."""

    def plan(self, view):
        """Return the next step's plan: who computes, and whom to throw out."""
        batch, free, thrown_out = list(view.running), view.free_blocks, []

        def need(r):
            return view.blocks_needed(r, r.missing)

        while sum(need(r) for r in batch) > free:
            victim = batch.pop()
            thrown_out.append(victim.id)
            free += victim.blocks
        free -= sum(need(r) for r in batch)
        for r in view.waiting:
            spare = 0
            if thrown_out or need(r) + spare > free:
                continue
            free -= need(r)
            batch.append(r)
        return Plan([(r.id, r.missing) for r in batch], preempted=thrown_out)
