"""The engine's check of every plan, before anything is done.

A plan that breaks a rule is stopped with a `PlanError` that names step, request and rule, so
that a faulty policy gives an explanation and never a wrong figure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping

from .errors import PlanError
from .plan import Plan, View
from .request import Progress

RULES = {
    "view": "a policy reads the queue and the batch, it does not change them",
    "plan": "a policy returns a Plan, made of (id, tokens) pairs of whole numbers",
    "known": "only requests that have arrived and are not done can be scheduled",
    "once": "a request appears once",
    "tokens": "at least one token, and no more than are missing",
    "blocks": "no more KV blocks than are free once the preempted have given theirs back, and in "
    "a contiguous cache no larger chunks than its holes",
    "preempted": "only running requests can be preempted, and not in the step that schedules them",
    "wait": "waiting needs something to come, and nothing scheduled beside it",
    "queue": "a reordered queue holds exactly the requests that still wait",
    "padding": "padding is a whole number, 0 or more, and no shorter than the prompt it pads",
    "progress": "a policy must not stand still for ever",
}
"""The rules by name."""


def check_view(view: View, waiting: int, running: list[Progress]) -> None:
    """Stop a policy that took requests out of the view, or reordered it, instead of planning.

    Parameters
    ----------
    view : View
        What the policy was shown.
    waiting : int
        Length of the queue before.
    running : list of Progress
        The batch before.

    Raises
    ------
    PlanError
    """
    for name, changed in (
        ("waiting", len(view.waiting) != waiting),
        ("running", view.running != running),
    ):
        if changed:
            detail = f"plan() changed view.{name}; work on a copy, list(view.{name})"
            raise PlanError(view.step, None, "view", detail)


def check(view: View, plan: object, live: Mapping[int, Progress], running: Container[int]) -> Plan:
    """Return the plan if it keeps all rules that one step can break.

    Parameters
    ----------
    view : View
        What the policy was shown.
    plan : object
        What it returned.
    live : mapping of int to Progress
        Every request that is waiting or running, by id.
    running : container of int
        Ids of those that run.

    Raises
    ------
    PlanError
        Naming the step, the request and the first rule that is broken.
    """
    step = view.step
    if not isinstance(plan, Plan):
        raise PlanError(step, None, "plan", f"plan() returned {plan!r}; return a servesim.Plan")
    _check_types(step, plan)
    if plan.wait:
        _check_wait(view, plan)
        return plan

    room = view.room()
    thrown_out = set()
    for rid in plan.preempted:
        if type(rid) is not int or rid not in running or rid in thrown_out:
            raise PlanError(step, _id(rid), "preempted", f"{rid!r} is not running")
        thrown_out.add(rid)
        room.give(live[rid].blocks)

    seen = set()
    for item in plan.scheduled:
        try:
            rid, tokens = item
        except (TypeError, ValueError):
            raise PlanError(step, None, "plan", f"{item!r} is not an (id, tokens) pair") from None
        if type(rid) is not int or type(tokens) is not int:
            detail = f"({rid!r}, {tokens!r}) are not two whole numbers"
            raise PlanError(step, _id(rid), "plan", detail)
        if rid not in live:
            raise PlanError(step, rid, "known", "no such request is waiting or running")
        if rid in seen:
            raise PlanError(step, rid, "once", "it is scheduled twice")
        if rid in thrown_out:
            raise PlanError(step, rid, "preempted", "it is preempted and scheduled in one step")
        seen.add(rid)
        request = live[rid]
        if not 1 <= tokens <= request.missing:
            detail = f"{tokens} tokens are scheduled, {request.missing} are missing"
            raise PlanError(step, rid, "tokens", detail)
        need = view.blocks_needed(request, tokens)
        if not room.take(need):
            detail = f"{need} blocks are needed for {tokens} tokens, {room.free} are free"
            raise PlanError(step, rid, "blocks", detail + room.in_pieces)

    if plan.padded_prompt or plan.idle_slots:
        _check_padding(view, plan, live)
    if plan.queue is not None:
        stay = Counter(r.id for r in view.waiting if r.id not in seen)
        stay.update(thrown_out)
        if any(type(rid) is not int for rid in plan.queue) or Counter(plan.queue) != stay:
            detail = f"it lists {len(plan.queue)} requests, {sum(stay.values())} wait"
            raise PlanError(step, None, "queue", detail)
    return plan


def _check_types(step: int, plan: Plan) -> None:
    for name, known in (
        ("scheduled", (list, tuple)),
        ("preempted", (list, tuple)),
        ("queue", (list, tuple, type(None))),
        ("reasons", dict),
        ("wait", bool),
        ("repeatable", bool),
    ):
        value = getattr(plan, name)
        if not isinstance(value, known):
            raise PlanError(step, None, "plan", f"{name} is {value!r}; see servesim.Plan")


def _check_wait(view: View, plan: Plan) -> None:
    if plan.scheduled or plan.preempted:
        raise PlanError(view.step, None, "wait", "the plan waits and schedules at once")
    if not view.more_to_come:
        raise PlanError(view.step, None, "wait", "the plan waits, but no request will arrive")


def _check_padding(view: View, plan: Plan, live: Mapping[int, Progress]) -> None:
    for name, value in (("padded_prompt", plan.padded_prompt), ("idle_slots", plan.idle_slots)):
        if type(value) is not int or value < 0:
            detail = f"{name} is {value!r}, not a whole number from 0 up"
            raise PlanError(view.step, None, "padding", detail)
    for rid, tokens in plan.scheduled:
        if plan.padded_prompt and not live[rid].decoding and tokens > plan.padded_prompt:
            detail = f"{tokens} tokens do not fit a prompt padded to {plan.padded_prompt}"
            raise PlanError(view.step, rid, "padding", detail)


def _id(value: object) -> int | None:
    return value if type(value) is int else None
