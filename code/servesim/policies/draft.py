"""A plan in the making, for policies that preempt."""

from __future__ import annotations

from ..kv import so_many
from ..plan import Plan, View
from ..request import Progress


class Draft:
    """What is left of token budget and blocks, and who got what so far.

    Attributes
    ----------
    budget, free : int
        Tokens and KV blocks left.
    size : int
        Requests in the batch as it will be.
    turns : list of Progress
        Running requests that are served one by one; `cursor` tells whose turn it is.
    decode_all : bool
        True if those that decode were served together, and are not among `turns`.
    tokens : dict of int to int
        Tokens given one by one, by request id.
    preempted, skipped : list of Progress
    """

    __slots__ = (
        *("view", "budget", "free", "size", "cursor", "turns", "decode_all", "tokens"),
        *("preempted", "skipped", "reasons", "only_decodes", "only_whole", "_whole_budget"),
    )

    def __init__(self, view: View, budget: int) -> None:
        self.view, self.budget, self.free = view, budget, view.free_blocks
        self._whole_budget = budget
        self.size, self.cursor = view.running.size, 0
        self.turns: list[Progress] = []
        self.decode_all = False
        self.tokens: dict[int, int] = {}
        self.preempted: list[Progress] = []
        self.skipped: list[Progress] = []
        self.reasons: dict[int, str] = {}
        self.only_decodes = self.only_whole = True

    def begin(self, last_goes_first: bool = False) -> None:
        """Serve those that decode together, if they come first and the budget is enough for all.

        Nobody among them then needs a closer look: only the others have turns. If there are too
        few blocks, whoever joined last is thrown out until there are enough, or, without
        `last_goes_first`, everyone is served in turn.
        """
        batch = self.view.running
        need, decodes = batch.blocks_to_decode, batch.decodes
        can_buy = need <= self.free or last_goes_first
        self.decode_all = can_buy and batch.decodes_lead and decodes <= self.budget
        self.turns = list(batch.prefilling if self.decode_all else batch)
        if not self.decode_all:
            return
        self.budget -= decodes
        if need > self.free:
            need = self._make_room(need)
        self.free -= need

    def _make_room(self, need: int) -> int:
        """Throw out from the end until the blocks suffice; return what the others need."""
        for last in reversed(self.view.running):
            if need <= self.free:
                break
            why = f"those who decode need {so_many(need)} more, {self.free} free"
            if self.turns:
                self.preempt(last, why)
            else:
                need -= self.view.blocks_needed(last, 1)
                self.budget += 1
                self._throw_out(last, why)
        return need

    def name_everyone(self) -> None:
        """Write down those that were served together one by one, as if each had had a turn."""
        if not self.decode_all:
            return
        decoding = [r for r in self.view.running if r.decoding]
        self.tokens = {**{r.id: 1 for r in decoding}, **self.tokens}
        self.turns[:0] = decoding
        self.cursor += len(decoding)
        self.decode_all = False

    def schedule(self, r: Progress, tokens: int) -> None:
        """Give tokens to a request, and buy the blocks for them."""
        missing = r.prompt_len + r.produced - r.computed
        self.tokens[r.id] = tokens
        self.budget -= tokens
        self.free -= self.view.blocks_needed(r, tokens)
        if tokens < missing:
            self.only_whole = False
        if missing > 1 or not r.produced:
            self.only_decodes = False

    def preempt(self, r: Progress, why: str) -> None:
        """Throw a request out; what this step had given it comes back."""
        index = next(i for i, other in enumerate(self.turns) if other is r)
        del self.turns[index]
        self.cursor -= index < self.cursor  # so that nobody is skipped
        if tokens := self.tokens.pop(r.id, 0):
            self.budget += tokens
            self.free += self.view.blocks_needed(r, tokens)
        self._throw_out(r, why)

    def _throw_out(self, r: Progress, why: str) -> None:
        self.reasons[r.id] = f"r{r.id} is thrown out: {why}"
        self.size -= 1
        self.free += r.blocks
        self.preempted.append(r)

    def shortage(self, r: Progress, tokens: int) -> str:
        """Say which blocks are missing for a request's tokens."""
        need = so_many(self.view.blocks_needed(r, tokens))
        return f"r{r.id} needs {need} more, {self.free} free"

    @property
    def full(self) -> str:
        """Say what is used up: the token budget, or else the places in the batch."""
        if self.budget:
            return f"all {self.size} places are taken"
        return f"the step's {self._whole_budget} tokens are used"

    def hold(self, r: Progress, why: str) -> None:
        """Note why a request gets nothing in this step."""
        self.reasons[r.id] = f"r{r.id} waits: {why}"

    def plan(self, queue: list[int] | None, until_arrival: bool = False) -> Plan:
        """Write it down. It repeats itself if all who run decode from the next step on.

        Then either nobody was held, or it decodes already: for the next step holds the same.
        If nobody was held, it may hold past finishes as well (`until_arrival`).
        """
        if not self.budget:
            for r in self.turns[self.cursor : self.cursor + 1]:
                self.hold(r, self.full)
        plan = Plan(list(self.tokens.items()), self.decode_all)
        plan.queue, plan.reasons = queue, self.reasons
        if self.preempted:
            plan.preempted = [r.id for r in self.preempted]
            waiting = self.view.waiting
            if waiting and waiting[0].id not in self.reasons:
                self.hold(waiting[0], "nobody joins in a step that throws somebody out")
        elif not self.skipped:
            plan.repeatable = self.only_decodes or (self.only_whole and not self.reasons)
            plan.until_arrival = until_arrival and not self.reasons
        return plan
