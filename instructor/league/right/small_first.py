"""Small prompts go first, with a head start for those who wait."""

from servesim import Plan

DEFENSE = """
Small prompts go first: each of them is quickly served, and the time that one long prompt takes is
enough for ten short ones. That is shortest job first, as far as one can know it: the length of
the answer is not in the view. Each token of a prompt, up to 2000, puts a request back by 10 ms, so
that even the longest is passed only by those who come within 20 s. Goodput on documents comes nearest of all to the bound. It fails
those with long prompts: nearly all that are late have more than 1500 tokens. If long prompts paid
more than short ones, this would be the wrong policy, and a run that counts tokens served in time
would show it.
"""


class Policy:
    """Small prompts first, but waiting counts."""

    def plan(self, view):
        """Return the next step's plan."""
        ms = 1_000_000

        def turn(r):
            return 10 * min(r.prompt_len, 2000) + r.arrival_ns // ms, r.id

        def need(r):
            return view.blocks_needed(r, r.missing)

        batch, free, left, plan = list(view.running), view.free_blocks, 768, Plan()
        while sum(need(r) for r in batch) > free:
            victim = max(batch, key=lambda r: (r.arrival_ns, r.id))
            batch.remove(victim)
            plan.preempted.append(victim.id)
            free += victim.blocks
        free -= sum(need(r) for r in batch)
        inside = {r.id for r in batch}
        queue = sorted(batch, key=lambda r: (not r.decoding, turn(r)))
        for r in queue + sorted([] if plan.preempted else view.waiting, key=turn):
            if r.id not in inside and (not left or need(r) + len(batch) > free):
                break
            if left:
                plan.scheduled.append((r.id, min(left, r.missing)))
                left -= min(left, r.missing)
            free -= 0 if r.id in inside else need(r)
        return plan
