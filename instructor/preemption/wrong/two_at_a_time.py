# loses: room, speed
"""Lets no more than two run, which nearly always fit."""

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

        while sum(need(r) for r in batch) > free:
            victim = max(batch, key=age)
            batch.remove(victim)
            thrown_out.append(victim.id)
            free += victim.blocks
        free -= sum(need(r) for r in batch)
        for r in sorted(view.waiting, key=age):
            spare = len(batch)  # a block for everyone who runs
            if thrown_out or len(batch) == 2 or need(r) + spare > free:
                break
            free -= need(r)
            batch.append(r)
        return Plan([(r.id, r.missing) for r in batch], preempted=thrown_out)
