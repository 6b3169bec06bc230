"""Chunked prefill: a long prompt is processed in slices, so that the others are not held up."""

from __future__ import annotations

from itertools import chain

from ..checks import at_least
from ..kv import UNLIMITED
from ..plan import Plan, View
from .base import Policy
from .continuous import admissible


class Chunked(Policy):
    """Continuous batching in which no step takes in too much of a prompt.

    Two kinds of slicing, one or both: a limit for each request, and one budget that all share.

    Parameters
    ----------
    token_budget : int or None
        Tokens in a step, all requests together. Decodes are served first, one token each; what
        is left goes to prompts in order of arrival.
    chunk : int or None
        Most prompt tokens of one request in a step.
    max_running : int or None
        Places in the batch; None for as many as the KV cache holds.

    If neither limit is given, `token_budget` is 512 (Sarathi-Serve's choice for small models).
    """

    knows_output_length = True
    reserve_all = True

    def __init__(
        self,
        token_budget: int | None = None,
        chunk: int | None = None,
        max_running: int | None = None,
    ) -> None:
        if token_budget is None and chunk is None:
            token_budget = 512
        at_least(1, token_budget=token_budget, chunk=chunk, max_running=max_running)
        self.token_budget, self.chunk, self.max_running = token_budget, chunk, max_running

    def plan(self, view: View) -> Plan:
        """Give out tokens: to decodes, then to prompts in order, then to newcomers that fit."""
        # Those who decode outgrow it only where a subclass lowers it: each had a token of it.
        left = max(0, (self.token_budget or UNLIMITED) - view.running.decodes)
        used = f"waits: the step's {self.token_budget} tokens are used"
        plan = Plan(decode_all=True, repeatable=True)
        for r in chain(view.running.prefilling, admissible(view, self.max_running, plan.reasons)):
            tokens = min(r.missing, self.chunk or r.missing, left)
            if not tokens:
                plan.reasons[r.id] = f"r{r.id} {used}"
                plan.repeatable = not plan.scheduled  # else more are left next time
                break
            left -= tokens
            plan.scheduled.append((r.id, tokens))
            plan.repeatable &= tokens == r.missing
        plan.until_arrival = type(self).plan is Chunked.plan and not plan.reasons
        return plan
