"""Fairness between tenants: whoever was served least is next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..plan import Plan, View
from ..request import Progress
from .vllm import VLLM


@dataclass(repr=False)
class Fair(VLLM):
    """vLLM's scheduler, but the next to be admitted comes from the tenant served least so far.

    A virtual token counter per tenant (Sheng et al., OSDI 2024): prompt tokens count when a
    request is first admitted, output tokens as they come. Who comes back after a pause starts
    level with the least served of those present, or of the last who were: idle time cannot be
    saved up.

    Parameters
    ----------
    output_weight : float
        What an output token counts, if a prompt token counts 1.

    The others are those of `VLLM`.
    """

    output_weight: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.served: defaultdict[str, float] = defaultdict(float)
        self._last: tuple[int, set[str], list[str]] = 0, set(), []

    def plan(self, view: View) -> Plan:
        """Count what was served since the last plan, then go on as vLLM does."""
        step, before, decoded = self._last
        for tenant in decoded:
            self.served[tenant] += self.output_weight * (view.step - step)
        here = {r.tenant for r in (*view.running, *view.waiting)}
        # Those still here, or after a pause of all those who were there at its beginning.
        floor = min((self.served[t] for t in here & before or before), default=0.0)
        self.served |= {t: max(self.served[t], floor) for t in here - before}
        plan = super().plan(view)
        joining = dict(plan.scheduled)
        for r in view.waiting:
            self.served[r.tenant] += r.prompt_len * (r.id in joining and not r.preemptions)
        stay = [r for r in view.running if r.decoding and r.id not in plan.preempted]
        self._last = view.step, here, [r.tenant for r in stay]
        # Whoever ends its prompt in this step decodes, and is counted, from the next plan on.
        plan.repeatable &= not view.waiting and not any(view.running.prefilling)
        return plan

    def in_order(self, waiting: Iterable[Progress]) -> Iterator[Progress]:
        """Yield the oldest request of the tenant served least, again and again."""
        queue, served = list(waiting), self.served.copy()
        while queue:
            r = min(queue, key=lambda r: (served[r.tenant], r.arrival_ns, r.id))
            yield r  # who asks for the next one has admitted this one
            queue.remove(r)
            served[r.tenant] += r.prompt_len
