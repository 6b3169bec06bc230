"""Prefill first: a step takes in prompts, or it decodes, never both."""

from __future__ import annotations

from ..checks import whole_from
from ..kv import so_many
from ..plan import Plan, View, everything
from ..request import Progress
from .base import Policy
from .draft import Draft


class PrefillFirst(Policy):
    """Take in whoever fits, with whole prompts; decode only when nobody can join.

    KV blocks are bought on demand. If a decode finds none, the last to join is preempted: its
    blocks are freed, and its tokens will be computed again. This is how nano-vllm schedules, and
    SGLang and the first vLLM by default.

    Parameters
    ----------
    token_budget : int
        Prompt tokens in a step (default: nano-vllm's and SGLang's). A prompt above it is taken in
        alone, since it is never cut.
    max_running : int
        Places in the batch.
    """

    def __init__(self, token_budget: int = 16384, max_running: int = 512) -> None:
        whole_from(1, token_budget=token_budget, max_running=max_running)
        self.token_budget, self.max_running = token_budget, max_running

    def plan(self, view: View) -> Plan:
        """Prefill if anyone can join, else decode."""
        step = Draft(view, self.token_budget)
        joining = self.joining(step)
        if joining:
            for r in view.running:
                step.hold(r, "this step takes in prompts only")
            return Plan(everything(joining), reasons=step.reasons)
        return self.decode(step)

    def joining(self, step: Draft) -> list[Progress]:
        """Take from the head of the queue while places, budget and blocks last."""
        joining: list[Progress] = []
        for r in step.view.waiting:
            need = step.view.blocks_needed(r, r.missing)
            if step.size + len(joining) >= self.max_running:
                step.hold(r, f"all {self.max_running} places are taken")
            elif need > step.free:
                step.hold(r, f"needs {so_many(need)}, {step.free} free")
            elif joining and r.missing > step.budget:
                step.hold(r, f"{r.missing} tokens do not fit the {step.budget} left in the budget")
            else:
                step.schedule(r, r.missing)
                joining.append(r)
                continue
            break
        return joining

    def decode(self, step: Draft) -> Plan:
        """Give everyone a token, in order; preempt from the end of the batch for blocks."""
        step.begin(last_goes_first=True)
        while step.cursor < len(step.turns):
            r = step.turns[step.cursor]
            if step.view.blocks_needed(r, 1) > step.free:
                step.preempt(step.turns[-1], step.shortage(r, 1))  # in the end r itself
            else:
                step.schedule(r, 1)
                step.cursor += 1
        return step.plan(None, until_arrival=type(self).plan is PrefillFirst.plan)
