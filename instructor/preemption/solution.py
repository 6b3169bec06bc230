"""Preemption: let requests into a small KV cache, and throw some out when it is full.

Blocks are bought on demand: `view.blocks_needed(r, tokens)` says how many a request must get
before so many of its tokens can run, `r.blocks` how many it holds. Whoever is named in
`Plan(preempted=[...])` gives them back, waits again, and computes everything again.
"""

from servesim import Plan


class Policy:
    """First come, first served; when blocks run out the youngest goes."""

    def plan(self, view):
        """Return the next step's plan: who computes, and whom to throw out."""
        # BEGIN SOLUTION
        # STARTER: raise NotImplementedError("return a Plan: who computes, and whom to throw out")
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
            if thrown_out or need(r) + spare > free:
                break
            free -= need(r)
            batch.append(r)
        return Plan([(r.id, r.missing) for r in batch], preempted=thrown_out)
        # END SOLUTION
