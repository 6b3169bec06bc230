"""Token budget: as many prompt tokens beside the decodes as the target for the P99 ITL allows.

The policy is not told what a step costs. `view.clock_ns` shows it: the time between two calls
of `plan` is how long the step in between took.
"""

from servesim import Plan


class Policy:
    """Learn what a prompt token costs, and fill the steps up to the target."""

    def __init__(self, target_ms):
        self.target = target_ms * 1_000_000

    def plan(self, view):
        """Return the next step's plan: (id, tokens) pairs for those who run."""
        raise NotImplementedError("return a Plan: a token for each decode, then prompts")
