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
        too_early_ns = view.clock_ns - round(self.patience_s * NS_PER_S)
        late = (r for r in view.waiting if r.arrival_ns < too_early_ns and not r.produced)
        # Only who waits already: somebody may be late and be preempted in this very step.
        self._late = dict.fromkeys((r.id for r in late), "turned away: late")
        plan = super().plan(view)
        plan.rejected = list(self._late)
        plan.reasons |= self._late
        if plan.queue is not None:
            plan.queue = [rid for rid in plan.queue if rid not in self._late]
        plan.repeatable &= not view.waiting  # time makes them late
        return plan

    def in_order(self, waiting: Iterable[Progress]) -> Iterable[Progress]:
        """Return the queue without those who are late."""
        return super().in_order([r for r in waiting if r.id not in self._late])
