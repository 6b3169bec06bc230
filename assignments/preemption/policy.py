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
        raise NotImplementedError("return a Plan: who computes, and whom to throw out")
