"""Continuous batching: decide who is in the batch before every step."""

from __future__ import annotations

from collections.abc import Iterator

from ..checks import at_least, flag
from ..kv import so_many
from ..plan import Plan, View, everything
from ..request import Progress
from .base import Policy


class Continuous(Policy):
    """Join as soon as there is room, leave as soon as you are done.

    Whoever joins has its whole prompt processed in that step, while the others decode.

    Parameters
    ----------
    max_running : int or None
        Places in the batch; None for as many as the KV cache holds.
    prefill_alone : bool
        A prompt is a step of its own, in which everyone else waits (as in system B).
    wait_for_arrivals : bool
        A quirk of system B: while a place is free and requests will still come, stand still
        until the next one is there, although others could decode.
    """

    knows_output_length = True
    reserve_all = True

    def __init__(
        self,
        max_running: int | None = None,
        prefill_alone: bool = False,
        wait_for_arrivals: bool = False,
    ) -> None:
        at_least(1, max_running=max_running)
        flag(prefill_alone=prefill_alone, wait_for_arrivals=wait_for_arrivals)
        self.max_running = max_running
        self.prefill_alone = prefill_alone
        self.wait_for_arrivals = wait_for_arrivals

    def plan(self, view: View) -> Plan:
        """Let in whoever fits, with its whole prompt; everyone else decodes."""
        reasons: dict[int, str] = {}
        joining = list(admissible(view, self.max_running, reasons))
        if self.prefill_alone and joining:
            return Plan(everything(joining[:1]))
        full = len(view.running) + len(joining) == self.max_running
        if self.wait_for_arrivals and view.more_to_come and not full and not reasons:
            return Plan(wait=True)
        plan = Plan(everything(joining), decode_all=True, repeatable=True, reasons=reasons)
        unmoved = type(self).plan is Continuous.plan and not self.wait_for_arrivals
        plan.until_arrival = unmoved and not reasons
        return plan


def admissible(view: View, max_running: int | None, reasons: dict[int, str]) -> Iterator[Progress]:
    """Yield requests from the head of the queue while places and blocks last.

    The first that does not fit blocks those behind it: first come, first served. Why it stays
    is noted in `reasons`.
    """
    room, places = view.room(), len(view.running)
    for r in view.waiting:
        if places == max_running:
            reasons[r.id] = f"r{r.id} waits: all {max_running} places are taken"
            return
        need = view.blocks_needed(r, r.missing)
        if not room.take(need):
            why = f"needs {so_many(need)}, {room.free} free{room.in_pieces}"
            reasons[r.id] = f"r{r.id} waits: {why}"
            return
        places += 1
        yield r
