"""Bug lab: under pressure the server computes the same prompt over and over.

A step has `budget` tokens. Blocks are bought on demand; when they run out, the last to join is
thrown out. Find a small workload on which somebody is thrown out again and again without getting
a token, write it down in `WORKLOAD`, and mend the policy.
"""

from servesim import Plan

# At most five rows: arrival in ms, prompt tokens, output tokens.
# BEGIN SOLUTION
# STARTER: WORKLOAD = []
WORKLOAD = [(0, 250, 200), (500, 300, 20)]
# END SOLUTION


class Policy:
    """A token budget, blocks on demand, and the last to join goes when they run out."""

    def __init__(self, budget):
        self.budget = budget

    def plan(self, view):
        """Serve those who run, then let in from the head of the queue."""
        plan, left, free = Plan(), self.budget, view.free_blocks
        batch = list(view.running)
        for r in list(batch):
            tokens = min(r.missing, left)
            while r in batch and view.blocks_needed(r, tokens) > free:
                victim = batch.pop()
                plan.preempted.append(victim.id)
                free += victim.blocks
            if r in batch and tokens:
                plan.scheduled.append((r.id, tokens))
                left, free = left - tokens, free - view.blocks_needed(r, tokens)
        # BEGIN SOLUTION
        # what those in the batch still have to buy for their prompts, and a block for each
        free -= sum(view.blocks_needed(r, r.missing) for r in batch if not r.decoding)
        free -= len(batch)
        # END SOLUTION
        for r in view.waiting:
            tokens = min(r.missing, left)
            # BEGIN SOLUTION
            # STARTER: need = view.blocks_needed(r, tokens)
            need = view.blocks_needed(r, r.missing)  # all that it misses, not the next chunk only
            # END SOLUTION
            if plan.preempted or not tokens or need > free:
                break
            plan.scheduled.append((r.id, tokens))
            left, free = left - tokens, free - need
        return plan
