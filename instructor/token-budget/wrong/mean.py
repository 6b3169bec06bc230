# loses: target
"""Keeps the mean of the steps at the target, not the tail."""

from servesim import Plan


class Policy:
    """Grow and shrink the budget by how long the last step took."""

    def __init__(self, target_ms):
        self.target = target_ms * 1_000_000
        self.began, self.full = 0, False
        self.sum = self.steps = 0
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
        """Add while the mean is below the target, take a quarter off when it is above."""
        if self.full:
            self.sum, self.steps = self.sum + took, self.steps + 1
            if self.sum > self.target * self.steps:
                self.budget = max(16, self.budget * 3 // 4)
            else:
                self.budget += 256
