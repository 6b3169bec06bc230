"""Load shedding: rather turn some away than let everybody wait too long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..plan import Plan, View
from ..request import NS_PER_S, Progress
from .vllm import VLLM


@dataclass(repr=False)
class Shedding(VLLM):
    """vLLM's scheduler, but who has waited too long is turned away.

    A request that can no longer be in time would take the place of one that can.

    Parameters
    ----------
    patience_s : float
        How long a request may wait before its first token, in seconds.

    The others are those of `VLLM`.
    """

    patience_s: float = 10.0

    def plan(self, view: View) -> Plan:
        """Turn away who is late, and go on with the others as vLLM does."""
        self._too_early_ns = view.clock_ns - round(self.patience_s * NS_PER_S)
        plan = super().plan(view)
        plan.rejected = [r.id for r in view.waiting if self.late(r)]
        plan.reasons |= dict.fromkeys(plan.rejected, "turned away: late")
        if plan.queue is not None:
            plan.queue = [rid for rid in plan.queue if rid not in plan.rejected]
        plan.repeatable &= not view.waiting  # time makes them late
        return plan

    def late(self, r: Progress) -> bool:
        """Tell whether a request has waited too long for its first token."""
        return r.arrival_ns < self._too_early_ns and not r.produced

    def in_order(self, waiting: Iterable[Progress]) -> Iterable[Progress]:
        """Return the queue without those who are late."""
        return super().in_order([r for r in waiting if not self.late(r)])
