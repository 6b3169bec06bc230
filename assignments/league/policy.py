"""League: serve as many requests as possible in time.

In time means: the first token within 2000 ms of the arrival, and no more than 50 ms per token
after that on average. There is more to do than can be done. Blocks are bought on demand.
"""

from servesim import Plan

DEFENSE = """
Say in a hundred words what your policy does and whom it fails. Name a metric and a number.
"""


class Policy:
    """First come, first served, but those who are late already let the others pass."""

    def plan(self, view):
        """Return the next step's plan."""
        raise NotImplementedError("return a Plan: who computes, and whom to throw out")
