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
        alone = view.running or view.waiting[:1]
        behind = view.waiting[:1] if view.running else view.waiting[1:2]
        return Plan(
            scheduled=everything(alone),
            repeatable=bool(view.running),
            reasons={r.id: f"r{alone[0].id} is served alone" for r in behind},
        )
