# loses: serve
"""Lets those who find no block stand by until the others have finished."""

from servesim import Plan


class Policy:
    """First come, first served; when blocks run out the youngest goes."""

    def plan(self, view):
        """Return the next step's plan: who computes, and whom to throw out."""
        batch, free, thrown_out = list(view.running), view.free_blocks, []

        def age(r):
            return r.arrival_ns, r.id

        def need(r):
            return view.blocks_needed(r, r.missing)

        served = list(view.running)
        while len(served) > 1 and sum(need(r) for r in served) > free:
            served.remove(max(served, key=age))
        while sum(need(r) for r in served) > free:
            victim = max((r for r in batch if r not in served), key=age)
            batch.remove(victim)
            thrown_out.append(victim.id)
            free += victim.blocks
        if len(served) < len(batch):
            return Plan([(r.id, r.missing) for r in served], preempted=thrown_out)
        free -= sum(need(r) for r in batch)
        for r in sorted(view.waiting, key=age):
            spare = len(batch)  # a block for everyone who runs
            if thrown_out or need(r) + spare > free:
                break
            free -= need(r)
            batch.append(r)
        return Plan([(r.id, r.missing) for r in batch], preempted=thrown_out)
