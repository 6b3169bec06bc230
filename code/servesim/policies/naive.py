"""Naive serving: one request at a time, start to finish."""

from __future__ import annotations

from ..plan import Plan, View, everything
from .base import Policy


class Naive(Policy):
    """Serve requests alone, in order of arrival; everyone else waits.

    The whole prompt is one step, then each output token is one step.
    """

    knows_output_length = True
    reserve_all = True

    def plan(self, view: View) -> Plan:
        """Go on with the one that runs, or take the next from the queue."""
        if view.running:
            alone, behind = view.running[0], view.waiting[:1]
            plan = Plan(decode_all=True, repeatable=True)
        else:
            alone, *behind = view.waiting[:2]
            plan = Plan(everything([alone]))
        plan.reasons = {r.id: f"r{r.id} waits: r{alone.id} is served alone" for r in behind}
        return plan
