# loses: defense
"""Names no number."""

from servesim import Plan

DEFENSE = """
Under overload first come, first served makes everybody late: whoever is next has nearly always
waited too long already. So I ask of each waiting request whether it can still be in time. Those
that can go first, in order of arrival. Those that cannot wait for some time, and then
take their turn like anybody else, so that nobody starves. On chat this serves many more in time. What I take from: the late ones, whose TTFT grows, and
a sharp burst, in which all become late together. A large budget keeps TPOT low enough, and a small one would not: steps cost much and do little. A load at which nobody is
late would prove that all of this is of no use, and harmless.
"""


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
