"""Keeps a balance only while both tenants wait, and starts it again at nothing."""

from servesim import Plan


class Policy:
    """Whoever has got fewer tokens so far goes first."""

    def __init__(self, slots):
        self.slots = slots
        self.served = {}  # tokens by tenant

    def plan(self, view):
        """Return the next step's plan: a token for each decode, then prompts."""
        self.known = {r.tenant for r in view.running}
        self.welcome({r.tenant for r in view.waiting})
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
            r = min(turn, key=lambda r: self.served[r.tenant])  # of equals the first
            prompts.remove(r)
            free -= not view.running.has(r.id)
            left -= self.give(plan, r, min(left, r.missing))
        return plan

    def welcome(self, asking):
        """Begin a new account whenever one of the tenants has nobody waiting."""
        if len(asking) < 2:
            self.served = {}
        self.served = {tenant: self.served.get(tenant, 0) for tenant in self.known | asking}

    def give(self, plan, r, tokens):
        """Schedule tokens and put them on the tenant's bill."""
        plan.scheduled.append((r.id, tokens))
        self.served[r.tenant] += tokens
        return tokens
