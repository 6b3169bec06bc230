# loses: defense
"""Says nothing."""

from servesim import Plan

DEFENSE = ""


class Policy:
    """First come, first served, but those who are late already let the others pass."""

    def plan(self, view):
        """Return the next step's plan."""
        second = 1_000_000_000

        def turn(r):
            late = 2 * second < view.clock_ns - r.arrival_ns < 8 * second
            return late and not r.produced, r.arrival_ns, r.id

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
