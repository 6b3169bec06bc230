# loses: target
"""Adds to the budget and never takes anything off."""

from servesim import Plan


class Policy:
    """Grow and shrink the budget by how long the last step took."""

    def __init__(self, target_ms):
        self.target = target_ms * 1_000_000
        self.began, self.full = 0, False
        self.budget = 128

    def plan(self, view):
        """Return the next step's plan: (id, tokens) pairs for those who run."""
        if view.running:  # otherwise the server may have stood idle in between
            self.learn(view.clock_ns - self.began)
        decodes = [r for r in view.running if r.decoding]
        prompts = [r for r in view.running if not r.decoding] + list(view.waiting)
        budget = self.budget
        if not decodes:
            budget = sum(r.missing for r in prompts)  # nobody's gap grows
        plan = Plan([(r.id, 1) for r in decodes])
        left = budget
        for r in prompts:
            if left:
                plan.scheduled.append((r.id, min(left, r.missing)))
                left -= min(left, r.missing)
        self.began, self.full = view.clock_ns, bool(decodes) and not left
        return plan

    def learn(self, took):
        """Add after every full step, however long it took."""
        if self.full:
            self.budget += 256
