# loses: target
"""Fills the steps beyond the target, because the percentile allows a few."""

from servesim import Plan


class Policy:
    """Learn what a prompt token costs, and fill the steps up to the target."""

    def __init__(self, target_ms):
        self.target = target_ms * 1_000_000
        self.began = self.tokens = self.decode_step = 0
        self.price = None  # of one prompt token, in nanoseconds

    def plan(self, view):
        """Return the next step's plan: (id, tokens) pairs for those who run."""
        if view.running:  # otherwise the server may have stood idle in between
            self.learn(view.clock_ns - self.began)
        decodes = [r for r in view.running if r.decoding]
        prompts = [r for r in view.running if not r.decoding] + list(view.waiting)
        budget = 64  # nothing is known yet
        if self.price:
            budget = max(16, int((1.2 * self.target - self.decode_step) / self.price))
        if not decodes:
            budget = sum(r.missing for r in prompts)  # nobody's gap grows
        plan = Plan([(r.id, 1) for r in decodes])
        left = budget
        for r in prompts:
            if left:
                plan.scheduled.append((r.id, min(left, r.missing)))
                left -= min(left, r.missing)
        self.began, self.tokens = view.clock_ns, budget - left
        return plan

    def learn(self, took):
        """Compare a step with prompts to the last one without."""
        if not self.tokens:
            self.decode_step = took
        else:
            price = max(1, took - self.decode_step) / self.tokens
            self.price = price if self.price is None else 0.8 * self.price + 0.2 * price
