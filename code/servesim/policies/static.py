"""Static batching: fill a batch, run it until its last member is done, repeat."""

from __future__ import annotations

from ..checks import whole_from
from ..plan import Plan, View, everything
from ..request import Progress
from .base import Policy


class Static(Policy):
    """Consecutive groups in order of arrival, padded to their longest prompt and output.

    Parameters
    ----------
    batch_size : int
        A group starts when this many have arrived (or no more will come) and the group before
        it is done. If the KV cache cannot hold so many, the group is as large as fits.
    """

    knows_output_length = True
    reserve_all = True

    def __init__(self, batch_size: int = 16) -> None:
        whole_from(1, batch_size=batch_size)
        self.batch_size = batch_size
        self._size = 0  # members of the group that runs, those already done included

    def plan(self, view: View) -> Plan:
        """Decode with the group that runs, or start the next one."""
        if view.running:
            idle = self._size - len(view.running)
            left = len(view.running)
            why = f"the group is not done, {left} of {self._size} still decode"
            reasons = {r.id: f"r{r.id} waits: {why}" for r in view.waiting[:1]}
            return Plan(decode_all=True, idle_slots=idle, repeatable=True, reasons=reasons)

        group = self.next_group(view)
        complete = len(group) == min(self.batch_size, len(view.waiting))
        if complete and len(group) < self.batch_size and view.more_to_come:
            head, why = group[0].id, f"{len(group)} of {self.batch_size} have arrived"
            return Plan(wait=True, reasons={head: f"r{head} waits: {why}"})
        if not group:
            head = view.waiting[0].id
            return Plan(reasons={head: f"r{head} waits: its blocks do not fit the KV cache"})
        self._size = len(group)
        behind = view.waiting[len(group) : len(group) + 1]
        reasons = {r.id: f"r{r.id} waits: a group of {len(group)} starts" for r in behind}
        padded = max(r.prompt_len for r in group)
        return Plan(everything(group), padded_prompt=padded, reasons=reasons)

    def next_group(self, view: View) -> list[Progress]:
        """Return the head of the queue, as far as batch size and KV cache allow."""
        group: list[Progress] = []
        room = view.room()
        for r in view.waiting[: self.batch_size]:
            if not room.take(view.blocks_needed(r, r.missing)):
                break
            group.append(r)
        return group
