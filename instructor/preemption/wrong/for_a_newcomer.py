# loses: needed
"""Throws somebody out, once each, to let in the head of the queue."""

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
        head = min(view.waiting, key=age, default=None)
        if head and not thrown_out and need(head) > free:
            for r in sorted(batch, key=age)[1:]:
                if not r.preemptions and need(head) <= r.blocks and r.computed < 40:
                    batch.remove(r)
                    free += r.blocks - need(head) - sum(need(b) for b in batch)
                    moving = [(b.id, b.missing) for b in [*batch, head]]
                    if free >= 0:
                        return Plan(moving, preempted=[r.id])
                    free, batch = view.free_blocks, list(view.running)
        free -= sum(need(r) for r in batch)
        for r in sorted(view.waiting, key=age):
            spare = len(batch)  # a block for everyone who runs
            if thrown_out or need(r) + spare > free:
                break
            free -= need(r)
            batch.append(r)
        return Plan([(r.id, r.missing) for r in batch], preempted=thrown_out)
