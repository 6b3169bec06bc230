"""Priorities that do not starve anybody: a lower class waits longer, but not for ever."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..request import NS_PER_S, Progress
from .vllm import VLLM


@dataclass(repr=False)
class Priority(VLLM):
    """vLLM's scheduler with priorities in which waiting counts.

    A request of priority p is treated as if it had arrived ``p * patience_s`` later, so it is
    overtaken only by more urgent ones that come within that time. With 0 the order is first come,
    first served; the larger it is, the more it is like ``VLLM(policy="priority")``, in which
    an urgent request overtakes everybody. It is also earliest deadline first, for deadlines that
    lie `patience_s` further away with each class.

    Parameters
    ----------
    patience_s : float
        In seconds, for each step of priority.

    The others are those of `VLLM`. If blocks run out, the least urgent is preempted.
    """

    policy: str = "priority"
    patience_s: float = 10.0

    def in_order(self, waiting: Iterable[Progress]) -> Iterable[Progress]:
        """Return the queue in the order of arrival, with the less urgent moved back."""
        late_ns = round(self.patience_s * NS_PER_S)
        return sorted(waiting, key=lambda r: (r.arrival_ns + r.priority * late_ns, r.id))
