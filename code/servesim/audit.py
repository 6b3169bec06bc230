"""The engine's check of every plan, before anything is done.

A plan that breaks a rule is stopped with a `PlanError` that names step, request and rule, so
that a faulty policy gives an explanation and never a wrong figure.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection
from operator import attrgetter
from types import CoroutineType
from typing import NoReturn

from .errors import PlanError, brief
from .job import Job
from .kv import Room
from .plan import Plan, View
from .request import MAX_TOKENS

RULES = {
    "view": "a policy reads the queue and the batch, it does not change them",
    "plan": "a policy returns a Plan, made of (id, tokens) pairs of whole numbers",
    "known": "only requests that have arrived and are not done can be scheduled",
    "once": "a request appears once",
    "tokens": "at least one token, and no more than are missing",
    "blocks": "no more KV blocks than are free once the preempted have given theirs back, and in "
    "a contiguous cache no larger chunks than its holes",
    "preempted": "only running requests can be preempted, and not in the step that schedules them",
    "rejected": "only waiting requests without a token can be turned away, and then not scheduled",
    "wait": "waiting needs something to come, and nothing scheduled beside it",
    "queue": "a reordered queue holds exactly the requests that still wait",
    "padding": "padding is a whole number, 0 or more, and no shorter than the prompt it pads",
    "progress": "a policy must not stand still for ever",
}
"""The rules by name."""


_TO_READ = (
    *("waiting", "running", "clock_ns", "step"),
    *("total_blocks", "block_size", "reserve_all", "more_to_come"),
    *("running.ticks", "running.decodes", "running.context"),
    *("running.on_demand", "running.block_size", "running.size"),
)
_at = deque.__getitem__  # the fast way: it is done in every step


def given(view: View) -> tuple[object, ...]:
    """Return what a policy may read but not change (`_TO_READ`), to compare it afterwards.

    Not the free blocks: a policy may count down in them. Of the queue, its length and both ends.
    """
    queue, batch = view.waiting, view.running
    head, tail = (_at(queue, 0), _at(queue, -1)) if queue else (None, None)
    return (
        queue,
        batch,
        view.clock_ns,
        view.step,
        view.total_blocks,
        view.block_size,
        view.reserve_all,
        view.more_to_come,
        batch.ticks,
        batch.decodes,
        batch.context,
        batch.on_demand,
        batch.block_size,
        batch.size,
        len(queue),
        head,
        tail,
    )


def _now(view: View, name: str) -> object:
    try:
        return attrgetter(name)(view)
    except AttributeError:
        return None


def check_view(view: View, before: tuple[object, ...]) -> None:
    """Stop a policy that changed the view instead of planning.

    Raises
    ------
    PlanError
    """
    try:
        if given(view) == before and view.running is before[1]:
            return
    except (AttributeError, TypeError):  # it is gone, or something else altogether
        pass
    changed = (n for n, old in zip(_TO_READ, before, strict=False) if _now(view, n) is not old)
    name = next(changed, "waiting")
    copy = (
        f"work on a copy, list(view.{name})" if name in ("waiting", "running") else "only read it"
    )
    step = before[_TO_READ.index("step")]
    assert type(step) is int
    raise PlanError(step, None, "view", f"plan() changed view.{name}; {copy}")


Grant = tuple[Job, int, int]
"""What a plan gives to one request: tokens to compute, and the blocks to buy for them."""


def check(view: View, plan: object, look: Callable[[int], Job | None]) -> list[Grant]:
    """Return what a plan gives to each that it schedules, if it keeps the rules of one step.

    Parameters
    ----------
    view : View
        What the policy was shown.
    plan : object
        What it returned.
    look : callable
        Gives a request in the system by its id, brought up to date; None if there is none.

    Raises
    ------
    PlanError
        Naming the step, the request and the first rule that is broken.
    """
    if not isinstance(plan, Plan):
        _refuse(view.step, plan)
    _check_types(view.step, plan)
    grants: list[Grant] = []
    if plan.wait:
        _check_wait(view, plan)
    elif plan.scheduled or plan.preempted or plan.rejected:
        grants = _check_requests(view, plan, look)
    elif plan.decode_all and view.running.blocks_to_decode > view.free_blocks:
        _no_blocks_to_decode(view, view.running.blocks_to_decode, view.free_blocks)
    if plan.reasons:
        _check_reasons(view.step, plan)
    if plan.padded_prompt or plan.idle_slots:
        _check_padding(view, plan, grants)
    if plan.queue is not None:
        _check_queue(view, plan, plan.queue)
    return grants


def _refuse(step: int, plan: object) -> NoReturn:
    if isinstance(plan, CoroutineType):
        plan.close()
        raise PlanError(step, None, "plan", "plan() is a coroutine: write def, not async def")
    detail = f"plan() returned {brief(plan)}; return a servesim.Plan"
    raise PlanError(step, None, "plan", detail)


def _no_blocks_to_decode(view: View, need: int, free: int) -> NoReturn:
    detail = f"{need} blocks are needed to decode, {free} are free"
    raise PlanError(view.step, None, "blocks", detail)


def _check_requests(view: View, plan: Plan, look: Callable[[int], Job | None]) -> list[Grant]:
    """Check who is thrown out and who is scheduled, and that there are blocks for them."""
    step, batch, room = view.step, view.running, Room(view.free_blocks, view.holes)
    stay = batch.blocks_to_decode if plan.decode_all else 0
    thrown_out: set[int] = set()
    for rid in plan.preempted:
        if type(rid) is not int:
            raise PlanError(step, None, "preempted", _no_id(rid))
        if not batch.has(rid) or rid in thrown_out:
            raise PlanError(step, rid, "preempted", f"{brief(rid)} is not running")
        thrown_out.add(rid)
        r = batch.look(rid)
        room.give(r.blocks)
        stay -= view.blocks_needed(r, 1) if plan.decode_all and r.decoding else 0
    if stay and not room.take(stay):
        _no_blocks_to_decode(view, stay, room.free)

    turned_away = _check_rejected(view, plan, look) if plan.rejected else ()
    grants, seen = [], set()
    for item in plan.scheduled:
        try:
            rid, tokens = item
        except (TypeError, ValueError):
            raise PlanError(
                step, None, "plan", f"{brief(item)} is not an (id, tokens) pair"
            ) from None
        if type(rid) is not int or type(tokens) is not int:
            kinds = f"{type(rid).__name__} and {type(tokens).__name__}"
            detail = f"({brief(rid)}, {brief(tokens)}) are {kinds}, not two whole numbers (int)"
            raise PlanError(step, _id(rid), "plan", detail)
        job = look(rid)
        if job is None:
            raise PlanError(step, rid, "known", "no such request is waiting or running")
        request = job.progress
        if rid in turned_away:
            raise PlanError(step, rid, "rejected", "it is turned away and scheduled in one step")
        if rid in seen:
            raise PlanError(step, rid, "once", "it is scheduled twice")
        if rid in thrown_out:
            raise PlanError(step, rid, "preempted", "it is preempted and scheduled in one step")
        if plan.decode_all and request.decoding:
            raise PlanError(step, rid, "once", "it is scheduled, and decode_all names it too")
        seen.add(rid)
        missing = request.prompt_len + request.produced - request.computed
        if not 1 <= tokens <= missing:
            detail = f"{brief(tokens)} tokens are scheduled, {missing} are missing"
            raise PlanError(step, rid, "tokens", detail)
        need = view.blocks_needed(request, tokens)
        if need and not room.take(need):
            detail = f"{need} blocks are needed for {tokens} tokens, {room.free} are free"
            raise PlanError(step, rid, "blocks", detail + room.in_pieces)
        grants.append((job, tokens, need))
    return grants


def _check_reasons(step: int, plan: Plan) -> None:
    for rid, why in plan.reasons.items():
        if type(rid) is not int or not isinstance(why, str):
            detail = f"reasons holds {brief(rid)}: {brief(why)}, not an id (int) and a text"
            raise PlanError(step, _id(rid), "plan", detail)


def _check_queue(view: View, plan: Plan, queue: list[int]) -> None:
    for rid in queue:
        if type(rid) is not int:
            raise PlanError(view.step, None, "queue", _no_id(rid))
    leave = {*plan.rejected, *(rid for rid, _ in plan.scheduled)}
    waits = Counter(r.id for r in view.waiting if r.id not in leave)
    waits.update(plan.preempted)
    listed = Counter(queue)
    if listed != waits:
        wrong = f"it lists {listed.total()} requests, {waits.total()} wait"
        for odd, why in ((listed - waits, "too often"), (waits - listed, "too seldom")):
            wrong += "".join(f"; {brief(rid)} {why}" for rid in list(odd)[:1])
        raise PlanError(view.step, None, "queue", wrong)


_LIST, _SWITCH = frozenset((list, tuple)), frozenset((bool,))
_TYPES: dict[str, frozenset[type]] = {
    "scheduled": _LIST,
    "preempted": _LIST,
    "rejected": _LIST,
    "decode_all": _SWITCH,
    "wait": _SWITCH,
    "repeatable": _SWITCH,
    "until_arrival": _SWITCH,
    "queue": frozenset((list, tuple, type(None))),
    "reasons": frozenset((dict,)),
}


def _check_types(step: int, plan: Plan) -> None:
    if (
        type(plan.scheduled) is list is type(plan.preempted)
        and type(plan.rejected) is list
        and type(plan.decode_all) is bool is type(plan.wait)
        and type(plan.repeatable) is bool is type(plan.until_arrival)
        and plan.queue is None
        and type(plan.reasons) is dict
        and type(plan.padded_prompt) is int is type(plan.idle_slots)
    ):
        return  # the usual case
    for name, known in _TYPES.items():
        value = getattr(plan, name)
        if type(value) not in known:
            raise PlanError(step, None, "plan", f"{name} is {brief(value)}; see servesim.Plan")
    _check_padding_sizes(step, plan)


def _check_rejected(view: View, plan: Plan, look: Callable[[int], Job | None]) -> Collection[int]:
    step, turned_away = view.step, set[int]()
    for rid in plan.rejected:
        if type(rid) is not int:
            raise PlanError(step, None, "rejected", _no_id(rid))
        job = None if view.running.has(rid) else look(rid)
        if job is None or rid in turned_away:
            raise PlanError(step, rid, "rejected", f"{brief(rid)} is not waiting")
        if produced := job.progress.produced:
            detail = f"{brief(rid)} has {produced} tokens already"
            raise PlanError(step, rid, "rejected", detail)
        turned_away.add(rid)
    return turned_away


def _check_wait(view: View, plan: Plan) -> None:
    if plan.scheduled or plan.preempted or plan.rejected or plan.decode_all:
        raise PlanError(view.step, None, "wait", "the plan waits and schedules at once")
    if not view.more_to_come:
        raise PlanError(view.step, None, "wait", "the plan waits, but no request will arrive")


def _check_padding_sizes(step: int, plan: Plan) -> None:
    for name, value in (("padded_prompt", plan.padded_prompt), ("idle_slots", plan.idle_slots)):
        if type(value) is not int or not 0 <= value <= MAX_TOKENS:
            detail = f"{name} is {brief(value)}, not a whole number from 0 to {MAX_TOKENS}"
            raise PlanError(step, None, "padding", detail)


def _check_padding(view: View, plan: Plan, grants: list[Grant]) -> None:
    _check_padding_sizes(view.step, plan)
    for job, tokens, _ in grants:  # who decodes has one token, and fits
        if 0 < plan.padded_prompt < tokens:
            detail = f"{tokens} tokens do not fit a prompt padded to {plan.padded_prompt}"
            raise PlanError(view.step, job.request.id, "padding", detail)


def _no_id(value: object) -> str:
    kind = type(value).__name__
    return f"{brief(value)} is a {kind}: name a request by its id, a whole number (int)"


def _id(value: object) -> int | None:
    return value if type(value) is int else None


class Watch:
    """Notices a policy that stands still, which no single plan shows.

    Parameters
    ----------
    empty_steps : int
        Steps in a row with nothing in them, after which a run stands still.
    tolerant : bool
        True: that is an outcome, unless time passes until somebody comes. So is going round in
        circles, if nothing else ends it. False: both are errors.
    cut : bool
        Whether the run ends after so many steps whatever it does.

    Attributes
    ----------
    tokens : int
        Tokens computed since any request last got further than ever before.
    """

    def __init__(self, empty_steps: int, tolerant: bool, cut: bool) -> None:
        self._allowed, self._tolerant, self._cut = empty_steps, tolerant, cut
        self._empty = self._steps = self.tokens = 0

    def got_further(self) -> None:
        """Note that in this step a request has more tokens in the cache than it ever had."""
        self._empty = self._steps = self.tokens = 0

    def stands_still(
        self, view: View, jobs: Collection[Job], plan: Plan, time_passes: bool
    ) -> bool:
        """Tell, after a step in which nobody got further, whether the run stands still.

        Parameters
        ----------
        view : View
        jobs : collection of Job
            The requests in the system.
        plan : Plan
            What was done.
        time_passes : bool
            Whether the step took time, and so the next arrival has come nearer.

        Raises
        ------
        PlanError
            If it does and that is an error.
        """
        self._steps += 1
        self._empty = 0 if plan.scheduled or plan.preempted else self._empty + 1
        in_circles = self._steps % 1000 == 0 and self._in_circles(jobs)
        if self._tolerant:
            if view.more_to_come and time_passes:
                self._empty = 0
            return self._empty >= self._allowed or (in_circles and not self._cut)
        if self._empty >= self._allowed:
            detail = (
                f"nothing was scheduled in {self._allowed} steps in a row; "
                "schedule something, or wait for the next arrival"
            )
        elif in_circles:
            detail = (
                f"in {self._steps} steps {self.tokens} tokens were computed again and no request "
                "got any further: the preemptions go round in circles"
            )
        else:
            return False
        longest_here = next(iter(jobs)).progress.id
        raise PlanError(view.step - 1, longest_here, "progress", detail)

    def _in_circles(self, jobs: Collection[Job]) -> bool:
        """Honest recomputation brings each request back to where it was, once or twice."""
        return self.tokens > 4 * sum(job.best for job in jobs)
