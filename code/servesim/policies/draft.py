"""A plan in the making, for policies that preempt."""

from __future__ import annotations

from ..plan import Plan, View
from ..request import Progress


class Draft:
    """What is left of token budget and blocks, and who got what so far.

    Attributes
    ----------
    running : list of Progress
        The batch as it will be; `cursor` is the place in it whose turn it is.
    budget, free : int
        Tokens and KV blocks left.
    tokens, bought : dict of int to int
        Tokens and blocks given in this step, by request id.
    preempted, skipped : list of Progress
    """

    def __init__(self, view: View, budget: int) -> None:
        self.view, self.budget, self.free = view, budget, view.free_blocks
        self.running, self.cursor = list(view.running), 0  # the cursor tells whose turn it is
        self.tokens: dict[int, int] = {}
        self.bought: dict[int, int] = {}
        self.preempted: list[Progress] = []
        self.skipped: list[Progress] = []
        self.reasons: dict[int, str] = {}
        self.only_decodes = True

    def schedule(self, r: Progress, tokens: int) -> None:
        """Give tokens to a request, and buy the blocks for them."""
        self.tokens[r.id], self.bought[r.id] = tokens, self.view.blocks_needed(r, tokens)
        self.budget -= tokens
        self.free -= self.bought[r.id]
        self.only_decodes &= r.decoding

    def preempt(self, r: Progress) -> None:
        """Throw a request out; what this step had given it comes back."""
        index = next(i for i, other in enumerate(self.running) if other is r)
        del self.running[index]
        self.cursor -= index < self.cursor  # so that nobody is skipped
        self.budget += self.tokens.pop(r.id, 0)
        self.free += r.blocks + self.bought.pop(r.id, 0)
        self.preempted.append(r)

    def hold(self, r: Progress, why: str) -> None:
        """Note why a request stays in the queue."""
        self.reasons[r.id] = f"r{r.id} waits: {why}"

    def plan(self, queue: list[int] | None) -> Plan:
        """Write it down. It repeats itself if all it does is to decode."""
        return Plan(
            scheduled=list(self.tokens.items()),
            preempted=[r.id for r in self.preempted],
            repeatable=self.only_decodes and not self.preempted and not self.skipped,
            queue=queue,
            reasons=self.reasons,
        )
