# loses: fair, promise
"""First come, first served."""

from servesim import Plan


class Policy:
    """First come, first served."""

    def __init__(self, slots):
        self.slots = slots
        self.served = {}  # tokens by tenant
        self.asking = set()  # tenants that had requests when we last looked

    def plan(self, view):
        """Return the next step's plan: a token for each decode, then prompts."""
        self.welcome({r.tenant for r in view.running + list(view.waiting)})
        plan, left = Plan(), 512
        for r in view.running:
            if r.decoding:
                left -= self.give(plan, r, 1)
        prompts = [r for r in view.running if not r.decoding] + list(view.waiting)
        free = self.slots - len(view.running)
        while left > 0:
            turn = [r for r in prompts if view.running.has(r.id) or free > 0]
            if not turn:
                break
            r = turn[0]
            prompts.remove(r)
            free -= not view.running.has(r.id)
            left -= self.give(plan, r, min(left, r.missing))
        return plan

    def welcome(self, asking):
        """Start a tenant that comes back where the others are: no credit for time away."""
        for tenant in asking - self.asking:
            others = [self.served[t] for t in asking & self.asking]
            self.served[tenant] = max([self.served.get(tenant, 0), *others])
        self.asking = asking

    def give(self, plan, r, tokens):
        """Schedule tokens and put them on the tenant's bill."""
        plan.scheduled.append((r.id, tokens))
        self.served[r.tenant] += tokens
        return tokens
