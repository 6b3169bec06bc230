"""A token budget for each step, chosen so that the step is as long as the SLO allows."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from ..checks import method
from ..cost import OPT_13B_A100, Cost, Work
from ..plan import Plan, View
from ..request import NS_PER_MS
from .vllm import VLLM


@dataclass(repr=False)
class StepTarget(VLLM):
    """vLLM's scheduler, but each step takes in as many prompt tokens as a time limit allows.

    Decodes come first; when they alone fill the time, prompts go on with one token a step.

    Parameters
    ----------
    target_ms : float
        How long a step may take: the limit on the gap between two tokens.
    prices : Cost
        What the policy believes a step costs.

    The others are those of `VLLM`; `max_num_batched_tokens` is the most that a step may hold.
    """

    target_ms: float = 100.0
    prices: Cost = OPT_13B_A100

    def __post_init__(self) -> None:
        super().__post_init__()
        method("price_ns", prices=self.prices)
        self._most = self.max_num_batched_tokens

    def plan(self, view: View) -> Plan:
        """Set the budget of this step, then go on as vLLM does."""
        decodes, context = view.running.decodes, view.running.context
        done = max((r.computed for r in view.running.prefilling), default=0)

        def price_ns(prompt: int) -> int:
            pairs = prompt * (prompt + 2 * done)
            return self.prices.price_ns(Work(prompt, decodes, context, pairs, prompt))

        limit_ns, sizes = self.target_ms * NS_PER_MS, range(1, self._most + 1)
        prompt = bisect_right(sizes, limit_ns, key=price_ns)
        self.max_num_batched_tokens = min(self._most, decodes + max(1, prompt))
        plan = super().plan(view)
        plan.repeatable &= not view.waiting  # as contexts grow, it shrinks
        return plan
