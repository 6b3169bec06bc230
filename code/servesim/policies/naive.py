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
            alone = view.running[0].id
            reasons = {r.id: f"r{r.id} waits: r{alone} is served alone" for r in view.waiting[:1]}
            return Plan(decode_all=True, repeatable=True, reasons=reasons)
        return Plan(everything(view.waiting[:1]))
