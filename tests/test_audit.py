"""Every rule of the audit stops the policy that breaks it, with step, request and rule."""

import pickle
from copy import copy
from functools import partial
from operator import attrgetter

import pytest

import servesim as ss
from servesim.audit import RULES
from servesim.cost import Affine
from servesim.plan import everything
from servesim.request import MAX_TOKENS
from tests.bad_values import HUGE

THREE = [ss.Request(i, 0, 10, 3) for i in range(3)]


def policy(plan, **declared):
    """Make a policy out of a function of the view."""
    return type("Faulty", (), {"plan": lambda self, view: plan(view), **declared})()


def stopped(plan, requests=THREE, declared=None, **options):
    """Return the PlanError that ends a run under a policy."""
    with pytest.raises(ss.PlanError) as caught:
        ss.simulate(requests, policy(plan, **(declared or {})), **options)
    error = caught.value
    assert error.rule in RULES
    assert f"step {error.step}" in str(error)
    assert f"rule '{error.rule}'" in str(error)
    assert error.detail in str(error)
    if error.request is not None:
        assert f"request {error.request}," in str(error)
    assert "\n" not in str(error)
    return error


def broken(error):
    return error.step, error.request, error.rule


def everybody(view):
    return ss.Plan(everything([*view.running, *view.waiting]))


def later(plan, step):
    """Behave until a step, then do wrong."""
    return lambda view: plan(view) if view.step == step else everybody(view)


# --- what is not a plan


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [(0, 10)],
        {"scheduled": []},
        ss.Plan,
        ss.Plan(scheduled=None),
        ss.Plan(scheduled={0: 10}),
        ss.Plan(scheduled=[0]),
        ss.Plan(scheduled=[(0, 10, 1)]),
        ss.Plan(scheduled=["0"]),
        ss.Plan(preempted=None),
        ss.Plan(preempted=0),
        ss.Plan(rejected=0),
        ss.Plan([(0, 10)], queue=1),
        ss.Plan([(0, 10)], reasons=None),
        ss.Plan(wait=1),
        ss.Plan(wait="no"),
        ss.Plan([(0, 10)], repeatable="yes"),
        ss.Plan([(0, 10)], until_arrival="yes"),
        ss.Plan([(0, 10)], decode_all=1),
    ],
    ids=repr,
)
def test_what_is_not_a_plan(answer):
    assert broken(stopped(lambda view: answer)) == (0, None, "plan")


@pytest.mark.parametrize("tokens", [True, 1.0, "1", None, 10.5, float("nan")])
def test_tokens_are_whole_numbers(tokens):
    assert broken(stopped(lambda view: ss.Plan([(0, tokens)]))) == (0, 0, "plan")


@pytest.mark.parametrize("rid", [False, 0.0, "0", None, [0]])
def test_ids_are_whole_numbers(rid):
    assert broken(stopped(lambda view: ss.Plan([(rid, 1)]))) == (0, None, "plan")


def test_numbers_of_numpy_are_named():
    numpy = pytest.importorskip("numpy")
    wrong = stopped(lambda view: ss.Plan([(0, numpy.int64(10))]))
    assert broken(wrong) == (0, 0, "plan")
    assert wrong.detail.endswith("are int and int64, not two whole numbers (int)")
    wrong = stopped(lambda view: ss.Plan(preempted=[numpy.int64(0)]))
    assert broken(wrong) == (0, None, "preempted")
    assert "is a int64: name a request by its id" in wrong.detail


def test_a_coroutine_is_no_plan(recwarn):
    class Async:
        async def plan(self, view):
            return ss.Plan()

    with pytest.raises(ss.PlanError, match="write def, not async def"):
        ss.simulate(THREE, Async())
    assert not recwarn.list


@pytest.mark.parametrize(
    ("reasons", "request_id"),
    [({0: 1}, 0), ({"0": "no room"}, None), ({None: None}, None), ({1: "no room", 2: None}, 2)],
)
def test_reasons_are_ids_and_texts(reasons, request_id):
    error = stopped(lambda view: ss.Plan([(0, 10)], reasons=reasons))
    assert broken(error) == (0, request_id, "plan")
    assert "reasons holds" in error.detail
    more_to_come = [*THREE, ss.Request(9, 10**9, 1, 1)]
    error = stopped(lambda view: ss.Plan(wait=True, reasons=reasons), more_to_come)
    assert broken(error) == (0, request_id, "plan")


@pytest.mark.parametrize("options", [{}, {"skip": False}, {"record_steps": True}])
def test_tuples_will_do_where_a_plan_has_lists(options):
    def in_tuples(view):
        plan = ss.Plan(decode_all=True, preempted=(), rejected=())
        plan.scheduled = tuple(everything(view.waiting))
        return plan

    def too_little(self, prompt_len, output_len):  # so that they outgrow what they reserve
        return 1

    knowing = {"knows_output_length": True, "reserve_all": True, "predict": too_little}
    for declared in ({}, knowing):
        result = ss.simulate(THREE, policy(in_tuples, **declared), **options)
        assert result.records == ss.simulate(THREE, policy(everybody, **declared)).records


def test_a_plan_is_not_told_at_length():
    assert len(str(stopped(lambda view: [(0, 10)] * 100_000))) < 300
    assert len(str(stopped(lambda view: ss.Plan([(0, 10**5000)])))) < 300


# --- who may be scheduled


@pytest.mark.parametrize("rid", [3, -1, 10**30])
def test_an_unknown_request(rid):
    assert broken(stopped(lambda view: ss.Plan([(rid, 1)]))) == (0, rid, "known")


def test_a_request_that_has_not_arrived():
    requests = [ss.Request(0, 0, 10, 3), ss.Request(1, 10**15, 10, 3)]
    assert broken(stopped(lambda view: ss.Plan([(1, 1)]), requests)) == (0, 1, "known")


def test_a_request_that_is_done():
    requests = [ss.Request(0, 0, 10, 1), ss.Request(1, 0, 10, 9)]
    error = stopped(later(lambda view: ss.Plan([(0, 1)]), step=2), requests)
    assert broken(error) == (2, 0, "known")


def test_a_request_scheduled_twice():
    assert broken(stopped(lambda view: ss.Plan([(1, 4), (2, 1), (1, 4)]))) == (0, 1, "once")


@pytest.mark.parametrize("tokens", [0, -1, 11, 10**30])
def test_no_tokens_or_more_than_are_missing(tokens):
    error = stopped(lambda view: ss.Plan([(0, 10), (2, tokens)]))
    assert broken(error) == (0, 2, "tokens")
    assert "10 are missing" in error.detail


def test_two_decodes_at_once():
    error = stopped(later(lambda view: ss.Plan([(1, 2)]), step=1))
    assert broken(error) == (1, 1, "tokens")


# --- blocks


def test_more_blocks_than_are_free():
    error = stopped(everybody, kv=ss.KVCache(blocks=2, block_size=16))
    assert broken(error) == (0, 2, "blocks")
    assert "1 blocks are needed for 10 tokens, 0 are free" in error.detail


def test_a_decode_that_needs_a_block_too_many():
    requests = [ss.Request(i, 0, 16, 3) for i in range(2)]
    error = stopped(everybody, requests, kv=ss.KVCache(blocks=3, block_size=16))
    assert broken(error) == (1, 1, "blocks")


@pytest.mark.parametrize("named", [False, True], ids=["nobody else", "somebody thrown out"])
def test_everybody_decodes_with_too_few_blocks(named):
    requests = [ss.Request(i, 0, 16, 40) for i in range(4)]

    def together(view):
        if view.step == 0:
            return everybody(view)
        last = [view.running[-1].id] if named and view.running.blocks_to_decode == 4 else []
        return ss.Plan(decode_all=True, preempted=last)

    error = stopped(together, requests, kv=ss.KVCache(blocks=6 - named, block_size=16))
    assert broken(error) == (1, None, "blocks")
    needed, free = (3, 2) if named else (4, 2)
    assert error.detail == f"{needed} blocks are needed to decode, {free} are free"


def test_one_who_decodes_is_named_beside_all():
    def twice(view):
        return ss.Plan([(1, 1)], decode_all=True) if view.step else everybody(view)

    assert broken(stopped(twice)) == (1, 1, "once")


def test_more_reserved_blocks_than_are_free():
    error = stopped(
        everybody,
        declared={"knows_output_length": True, "reserve_all": True},
        kv=ss.KVCache(blocks=5, block_size=4),  # 12 tokens each: 3 blocks
    )
    assert broken(error) == (0, 1, "blocks")


def test_making_blocks_up_in_the_view_does_not_help():
    def forge(view):
        view.free_blocks = 1000
        return everybody(view)

    error = stopped(forge, kv=ss.KVCache(blocks=2, block_size=16))
    assert broken(error) == (0, 2, "blocks")


@pytest.mark.parametrize(("preempted", "free"), [([], 1), ([0], 2), ([1], 3), ([0, 1], 4)])
def test_who_is_thrown_out_gives_back_what_it_holds_and_no_more(preempted, free):
    """Of 4 blocks, 0 holds one and would decode next, for which it needs another; 1 holds two."""

    def plan(tokens):
        first, then = ss.Plan([(0, 16), (1, 20)]), ss.Plan([(2, tokens)], preempted=preempted)
        return lambda view: then if view.step else first

    requests = [ss.Request(0, 0, 16, 9), ss.Request(1, 0, 99, 1), ss.Request(2, 0, 99, 1)]
    options = {"kv": ss.KVCache(4), "never_fits": "try"}
    cut = ss.simulate(requests, policy(plan(16 * free)), max_steps=2, **options)
    assert cut.peak_blocks == 4
    tokens = 16 * free + 1
    error = stopped(plan(tokens), requests, **options)
    assert broken(error) == (1, 2, "blocks")
    assert error.detail == f"{free + 1} blocks are needed for {tokens} tokens, {free} are free"


@pytest.mark.parametrize(
    ("preempted", "needed", "free"), [([], 2, 0), ([2], 2, 1), ([0], 1, 1), ([0, 2], 1, 2)]
)
def test_of_those_who_decode_only_the_thrown_out_need_no_block(preempted, needed, free):
    """Three hold a block each. Two of them decode and need another, one is in its prompt."""

    def plan(view):
        first = ss.Plan([(0, 16), (1, 16), (2, 16)])
        return ss.Plan(decode_all=True, preempted=preempted) if view.step else first

    requests = [ss.Request(0, 0, 16, 9), ss.Request(1, 0, 16, 9), ss.Request(2, 0, 99, 9)]
    options = {"kv": ss.KVCache(3), "never_fits": "try"}
    if needed <= free:
        assert ss.simulate(requests, policy(plan), max_steps=2, **options).steps == 2
        return
    error = stopped(plan, requests, **options)
    assert broken(error) == (1, None, "blocks")
    assert error.detail == f"{needed} blocks are needed to decode, {free} are free"


def test_who_is_thrown_out_with_room_in_its_last_block_would_have_needed_none():
    def plan(view):
        if view.step == 0:
            return everybody(view)
        return ss.Plan(decode_all=True, preempted=[0])

    requests = [ss.Request(0, 0, 15, 9), ss.Request(1, 0, 16, 9), ss.Request(2, 0, 16, 9)]
    error = stopped(plan, requests, kv=ss.KVCache(3))
    assert error.detail == "2 blocks are needed to decode, 1 are free"


@pytest.mark.parametrize("free", [0, 1, 2])
def test_decoding_may_take_the_last_block_and_needs_none_while_it_rests(free):
    def rests(view):
        plan = ss.Plan() if view.step == 1 else ss.Plan(decode_all=True)
        return plan if view.step else everybody(view)

    requests = [ss.Request(i, 0, 16, 2) for i in range(2)]
    kv = ss.KVCache(2 + free)
    if free == 2:
        assert len(ss.simulate(requests, policy(rests), kv=kv).finished) == 2
        return
    error = stopped(rests, requests, kv=kv)
    assert broken(error) == (2, None, "blocks")
    assert error.detail == f"2 blocks are needed to decode, {free} are free"


def test_blocks_of_the_preempted_can_be_given_to_others():
    def swap(view):
        if view.step == 1:
            return ss.Plan(everything(view.waiting), preempted=[view.running[0].id])
        return ss.Plan(everything(view.running or view.waiting[:1]))

    result = ss.simulate(THREE[:2], policy(swap), kv=ss.KVCache(1, 16))
    assert result.preemptions == 1
    assert len(result.finished) == 2


# --- preemption


@pytest.mark.parametrize("rid", [0, 7, "0", None, [0], True])
def test_preempting_who_does_not_run(rid):
    error = stopped(lambda view: ss.Plan(preempted=[rid]))
    assert broken(error) == (0, rid if type(rid) is int else None, "preempted")


def test_preempting_twice_in_one_step():
    error = stopped(later(lambda view: ss.Plan(preempted=[1, 1]), step=1))
    assert broken(error) == (1, 1, "preempted")


def test_preempting_and_scheduling_in_one_step():
    error = stopped(later(lambda view: ss.Plan([(1, 1)], preempted=[1]), step=1))
    assert broken(error) == (1, 1, "preempted")


# --- turning away


@pytest.mark.parametrize("rid", [7, "0", None, [0], True])
def test_turning_away_who_does_not_wait(rid):
    error = stopped(lambda view: ss.Plan(rejected=[rid]))
    assert broken(error) == (0, rid if type(rid) is int else None, "rejected")


@pytest.mark.parametrize("twice", [{"rejected": [1, 1]}, {"rejected": [1], "preempted": [1]}])
def test_turning_away_who_runs_or_is_gone(twice):
    def plan(view):
        if view.step == 1:
            return ss.Plan(**twice)
        return ss.Plan([(r.id, 5) for r in view.waiting])  # half of the prompt: without a token

    error = stopped(plan)
    assert broken(error) == (1, 1, "rejected")
    assert error.detail == "1 is not waiting"
    assert broken(stopped(lambda view: ss.Plan([(0, 1)], rejected=[1, 1]))) == (0, 1, "rejected")


def test_turning_away_and_scheduling_in_one_step():
    assert broken(stopped(lambda view: ss.Plan([(0, 9)], rejected=[0]))) == (0, 0, "rejected")


def test_an_answer_that_has_begun_is_not_taken_back():
    def plan(view):
        if view.step == 1:
            return ss.Plan([(0, 1)], preempted=[1])
        gone = [1] if view.step == 2 else []
        return ss.Plan([(r.id, r.missing) for r in view.running or view.waiting], rejected=gone)

    error = stopped(plan, THREE[:2])
    assert broken(error) == (2, 1, "rejected")
    assert "has 1 tokens already" in error.detail


def test_turning_away_and_waiting_at_once():
    error = stopped(
        lambda view: ss.Plan(wait=True, rejected=[0]), [*THREE, ss.Request(9, 10**9, 1, 1)]
    )
    assert broken(error) == (0, None, "wait")
    assert error.detail == "the plan waits and schedules at once"


def test_who_is_turned_away_is_gone_and_counted():
    def choosy(view):
        serve = [r for r in [*view.running, *view.waiting] if r.id != 1]
        return ss.Plan(everything(serve), rejected=[r.id for r in view.waiting if r.id == 1])

    done = []
    result = ss.simulate(THREE, policy(choosy), record_steps=True, on_done=done.append)
    assert [r.status for r in result.records] == ["finished", "rejected", "finished"]
    assert [r.request.id for r in result.rejected] == [1]
    assert [r.request.id for r in done] == [1, 0, 2]
    assert result.records[1].first_scheduled_ns is None
    assert all(step.waiting == [] for step in result.step_records)
    assert result.attainment(ss.SLO(10**6)) == 2 / 3
    two = ss.simulate([THREE[0], THREE[2]], policy(everybody))
    assert (result.end_ns, result.steps) == (two.end_ns, two.steps)
    assert result.system_ns == two.system_ns  # it left at once


def test_a_plan_that_turns_away_is_not_repeated():
    """Two who wait are turned away in steps 1 and 2, while one decodes."""

    def plan(view):
        if not view.running:
            return ss.Plan(everything(view.waiting[:1]))
        return ss.Plan(decode_all=True, repeatable=True, rejected=[r.id for r in view.waiting][:1])

    requests = [ss.Request(i, 0, 10, 30) for i in range(3)]
    fast, slow = (ss.simulate(requests, policy(plan), skip=skip) for skip in (True, False))
    assert fast.system_ns == slow.system_ns
    assert fast.engine_iterations < slow.engine_iterations


def test_nothing_but_turning_away_takes_no_time_and_no_step():
    result = ss.simulate(THREE, policy(lambda view: ss.Plan(rejected=[view.waiting[-1].id])))
    assert result.count("rejected") == 3
    assert (result.steps, result.end_ns, result.system_ns) == (0, 0, 0)


def test_a_reordered_queue_leaves_out_who_is_turned_away():
    def plan(view):
        if view.running:
            return ss.Plan(everything(view.running))
        first, *others = [r.id for r in view.waiting]
        gone = others[:1] if len(others) == 2 else []
        return ss.Plan([(first, 10)], rejected=gone, queue=others[len(gone) :])

    result = ss.simulate(THREE, policy(plan))
    assert [r.status for r in result.records] == ["finished", "rejected", "finished"]


# --- waiting


def test_waiting_with_nothing_to_come():
    error = stopped(lambda view: ss.Plan(wait=True))
    assert broken(error) == (0, None, "wait")
    assert error.detail == "the plan waits, but no request will arrive"


@pytest.mark.parametrize(
    "extra", [{"scheduled": [(0, 1)]}, {"preempted": [0]}, {"decode_all": True}], ids=str
)
def test_waiting_and_working_at_once(extra):
    requests = [*THREE, ss.Request(9, 10**15, 1, 1)]
    error = stopped(later(lambda view: ss.Plan(wait=True, **extra), step=1), requests)
    assert broken(error) == (1, None, "wait")
    assert error.detail == "the plan waits and schedules at once"


# --- the queue and padding


@pytest.mark.parametrize(
    ("queue", "wrong"),
    [
        ([], "it lists 0 requests, 2 wait; 1 too seldom"),
        ([1], "it lists 1 requests, 2 wait; 2 too seldom"),
        ([1, 1], "it lists 2 requests, 2 wait; 1 too often; 2 too seldom"),
        ([1, 2, 2], "it lists 3 requests, 2 wait; 2 too often"),
        ([1, 2, 0], "it lists 3 requests, 2 wait; 0 too often"),
        ([1, 3, 4], "it lists 3 requests, 2 wait; 3 too often; 2 too seldom"),
        (["1", 2], "'1' is a str: name a request by its id, a whole number (int)"),
        ([1.0, 2], "1.0 is a float: name a request by its id, a whole number (int)"),
        ([[1], 2], "[1] is a list: name a request by its id, a whole number (int)"),
    ],
    ids=repr,
)
def test_a_queue_that_loses_doubles_or_invents(queue, wrong):
    error = stopped(lambda view: ss.Plan([(0, 10)], queue=queue))
    assert broken(error) == (0, None, "queue")
    assert error.detail == wrong
    more_to_come = [*THREE[1:], ss.Request(9, 10**9, 1, 1)]
    error = stopped(lambda view: ss.Plan(wait=True, queue=queue), more_to_come)
    assert (broken(error), error.detail) == ((0, None, "queue"), wrong)


def test_a_queue_holds_whom_the_plan_throws_out_and_not_whom_it_turns_away():
    def plan(queue):
        second = ss.Plan(preempted=[0], rejected=[1], queue=queue)
        return lambda view: second if view.step == 1 else ss.Plan(everything(view.waiting[:1]))

    for queue in ([0, 2], [2, 0]):
        cut = ss.simulate(THREE, policy(plan(queue)), record_steps=True, max_steps=2)
        assert cut.step_records[1].waiting == queue
    assert stopped(plan([0, 1, 2])).detail == "it lists 3 requests, 2 wait; 1 too often"
    assert stopped(plan([2])).detail == "it lists 1 requests, 2 wait; 0 too seldom"


def test_a_reordered_queue_is_kept():
    def last_first(view):
        order = sorted((r.id for r in view.waiting), reverse=True)
        if view.running:
            return ss.Plan(everything(view.running), queue=order)
        return ss.Plan([(order[0], 10)], queue=order[1:])

    result = ss.simulate(THREE, policy(last_first), record_steps=True)
    assert [s.scheduled[0].id for s in result.step_records[::3]] == [2, 1, 0]
    assert result.step_records[0].waiting == [1, 0]


@pytest.mark.parametrize("field", ["padded_prompt", "idle_slots"])
@pytest.mark.parametrize("value", [-1, 1.5, "3", None, 0.0, False, 10**9, 10**40])
def test_padding_is_a_whole_number(field, value):
    error = stopped(lambda view: ss.Plan([(0, 10)], **{field: value}))
    assert broken(error) == (0, None, "padding")
    assert error.detail.startswith(f"{field} is ")


def test_padding_shorter_than_a_prompt():
    error = stopped(lambda view: ss.Plan([(0, 10)], padded_prompt=9))
    assert broken(error) == (0, 0, "padding")
    assert error.detail == "10 tokens do not fit a prompt padded to 9"
    error = stopped(lambda view: ss.Plan([(0, 1), (2, 2)], padded_prompt=1))
    assert broken(error) == (0, 2, "padding")


@pytest.mark.parametrize("padding", [{"padded_prompt": MAX_TOKENS}, {"idle_slots": MAX_TOKENS}])
def test_padding_may_be_as_long_as_a_prompt(padding):
    pads = policy(lambda view: ss.Plan([(0, 10)], **padding))
    assert ss.simulate(THREE, pads, max_steps=1).steps == 1
    more = {name: size + 1 for name, size in padding.items()}
    assert broken(stopped(lambda view: ss.Plan([(0, 10)], **more))) == (0, None, "padding")


# --- the view


def swap(queue, i, j):
    queue[i], queue[j] = queue[j], queue[i]


def set_to(name, value):
    """Set something of the view to what a function of the view says."""

    def change(view):
        *path, last = name.split(".")
        setattr(attrgetter(*path)(view) if path else view, last, value(view))

    return name, change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("waiting", lambda view: view.waiting.popleft()),
        ("waiting", lambda view: view.waiting.pop()),
        ("waiting", lambda view: view.waiting.clear()),
        ("waiting", lambda view: view.waiting.reverse()),
        ("waiting", lambda view: view.waiting.rotate(1)),
        ("waiting", lambda view: view.waiting.appendleft(view.waiting.pop())),
        ("waiting", lambda view: view.waiting.append(view.waiting.popleft())),
        ("waiting", lambda view: view.waiting.insert(1, view.waiting[1])),
        ("waiting", lambda view: swap(view.waiting, 0, 1)),
        ("waiting", lambda view: swap(view.waiting, 1, 2)),
        ("waiting", lambda view: delattr(view, "waiting")),
        ("running", lambda view: delattr(view, "running")),
        ("running.size", lambda view: view.running.join(view.waiting[0])),
        set_to("waiting", lambda view: None),
        set_to("waiting", lambda view: list(view.waiting)),
        set_to("running", lambda view: list(view.running)),
        set_to("running", lambda view: copy(view.running)),
        set_to("clock_ns", lambda view: view.clock_ns + 10**9),
        set_to("step", lambda view: 99),
        set_to("block_size", lambda view: 10**6),
        set_to("block_size", lambda view: 0),
        set_to("total_blocks", lambda view: 1),
        set_to("reserve_all", lambda view: True),
        set_to("more_to_come", lambda view: True),
        set_to("running.ticks", lambda view: 5),
        set_to("running.decodes", lambda view: 5),
        set_to("running.context", lambda view: 5),
        set_to("running.on_demand", lambda view: False),
        set_to("running.block_size", lambda view: 1),
        set_to("running.size", lambda view: 5),
    ],
)
def test_changing_the_view_instead_of_planning(name, change):
    def meddle(view):
        change(view)
        return ss.Plan([(0, 10)])

    error = stopped(meddle)
    assert broken(error) == (0, None, "view")
    mend = (
        f"work on a copy, list(view.{name})" if name in ("waiting", "running") else "only read it"
    )
    assert error.detail == f"plan() changed view.{name}; {mend}"


def test_changing_the_view_when_nobody_waits():
    error = stopped(later(lambda view: view.waiting.append(view.running[0]), step=1))
    assert broken(error) == (1, None, "view")


@pytest.mark.parametrize("name", ss.Progress.__dataclass_fields__)
def test_a_request_s_progress_is_read_only(name):
    def pretend(view):
        setattr(view.waiting[0], name, 1)

    with pytest.raises(ss.PolicyError, match=f"step 0.* cannot assign to field '{name}'"):
        ss.simulate(THREE, policy(pretend))


def test_making_holes_up_in_the_view_does_not_help():
    def forge(view):
        view.holes = [64]
        return everybody(view)

    assert len(ss.simulate(THREE, policy(forge), kv=ss.KVCache(9, 16)).finished) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda view: view.running.sort(key=lambda r: -r.id),
        lambda view: view.running.append(view.waiting[0]),
        lambda view: view.running.pop(),
    ],
)
def test_the_batch_cannot_be_changed_in_place(change):
    class Meddler:
        def plan(self, view):
            change(view)
            return everybody(view)

    with pytest.raises(ss.PolicyError, match="'Batch' object has no attribute"):
        ss.simulate(THREE, Meddler())


# --- progress


@pytest.mark.parametrize("allowed", [1, 3, 7])
def test_empty_plans_for_ever(allowed):
    error = stopped(lambda view: ss.Plan(), stall_steps=allowed)
    assert broken(error) == (allowed - 1, 0, "progress")
    assert f"nothing was scheduled in {allowed} steps in a row" in error.detail
    error = stopped(later(lambda view: ss.Plan(), step=0), stall_steps=1)
    assert broken(error) == (0, 0, "progress")

    def in_the_midst(view):
        return everybody(view) if view.step < 2 else ss.Plan()

    error = stopped(in_the_midst, stall_steps=allowed)
    assert broken(error) == (2 + allowed - 1, 0, "progress")


def test_empty_plans_for_ever_although_more_will_come():
    error = stopped(lambda view: ss.Plan(), [*THREE, ss.Request(9, 10**15, 1, 1)])
    assert broken(error) == (2, 0, "progress")


@pytest.mark.parametrize("work", [ss.Plan(preempted=[0]), ss.Plan([(1, 10)], preempted=[0])])
def test_to_throw_out_is_to_do_something(work):
    """What was computed is lost, and it is no progress; but only then does the pause begin."""

    def plan(view):
        done = [ss.Plan([(0, 10), (1, 10)]), ss.Plan(preempted=[1]), work]
        return done[view.step] if view.step < len(done) else ss.Plan()

    assert broken(stopped(plan)) == (2 + 3, 0, "progress")


def test_a_stall_names_who_has_been_there_longest():
    def plan(view):
        return everybody(view) if view.step == 0 else ss.Plan()

    first_is_done = [ss.Request(5, 0, 1, 1), ss.Request(3, 0, 9, 2), ss.Request(1, 0, 9, 2)]
    assert broken(stopped(plan, first_is_done)) == (3, 3, "progress")


def test_two_requests_that_throw_each_other_out_for_ever():
    def swap(view):
        half = [(r.id, 5) for r in view.waiting[:1]]
        return ss.Plan(half, preempted=[r.id for r in view.running])

    error = stopped(swap, THREE[:2], kv=ss.KVCache(1, 16))
    assert error.rule == "progress"


def test_a_request_that_throws_itself_out_for_ever():
    def restless(view):
        if view.running:
            return ss.Plan(preempted=[view.running[0].id])
        return ss.Plan([(view.waiting[0].id, 1)])

    assert stopped(restless).rule == "progress"


def sisyphus(view):
    """Let one decode a little, throw it out and compute it again, to the same point each time."""
    assert view.step < 10_000
    if view.running and view.running[0].produced == 2:
        return ss.Plan(preempted=[view.running[0].id])
    r = (view.running or view.waiting)[0]
    return ss.Plan([(r.id, 1 if r.produced == 2 else r.missing)])


def test_one_request_that_never_gets_to_its_end():
    assert stopped(sisyphus, [ss.Request(0, 0, 10, 5)]).rule == "progress"


def again_and_again(prompt_len):
    """Compute a prompt but its last token; then throw it out, and compute that token by token."""

    def plan(view):
        (r,) = (r for r in [*view.running, *view.waiting] if r.id == 7)
        if r.missing == 1:
            return ss.Plan(preempted=[7])
        return ss.Plan([(7, 1 if view.step else prompt_len - 1)])

    return plan


@pytest.mark.parametrize(
    ("most", "steps", "tokens"),
    [
        # A round is a step without a token and one for each token. In 1000 steps: 4 rounds of
        # 1 + 248, and 3 tokens of the next one.
        (248, 1000, 4 * 248 + 3),
        # 4 rounds of 1 + 249. That is 4 times as many as there are, and not more.
        (249, 2000, 8 * 249),
    ],
)
def test_going_round_in_circles_is_noticed_after_a_thousand_steps(most, steps, tokens):
    error = stopped(again_and_again(most + 1), [ss.Request(7, 0, most + 1, 1)])
    assert broken(error) == (steps, 7, "progress")
    assert error.detail == (
        f"in {steps} steps {tokens} tokens were computed again and no request got any further: "
        "the preemptions go round in circles"
    )


def test_circles_are_measured_by_all_that_is_in_the_system():
    """As above; but one more token is in the cache, and so 4 more may be computed again."""

    def beside(view):
        plan = again_and_again(249)(view)
        return plan if view.step else ss.Plan([*plan.scheduled, (8, 1)])

    requests = [ss.Request(7, 0, 249, 1), ss.Request(8, 0, 9, 1)]
    assert broken(stopped(beside, requests)) == (2000, 7, "progress")


def test_to_compute_much_again_in_small_pieces_is_no_circle():
    def plan(view):
        return (
            ss.Plan(preempted=[0]) if view.step == 1 else ss.Plan([(0, 1 if view.step else 3000)])
        )

    result = ss.simulate([ss.Request(0, 0, 3001, 1)], policy(plan))
    assert (len(result.finished), result.steps) == (1, 2 + 3001)


def test_it_is_no_stall_while_somebody_is_to_come():
    """Steps of 1 ms: the second comes after 10 of them, and then 3 more are allowed."""
    requests = [ss.Request(0, 0, 5, 1), ss.Request(1, 10 * 10**6, 5, 1)]
    step = Affine(base_ms=1)
    options = {"on_stall": "record", "cost": step}
    result = ss.simulate(requests, policy(lambda view: ss.Plan()), **options)
    assert (result.outcome, result.steps, len(result.records)) == ("stalled", 13, 2)

    def for_both(view):
        return ss.Plan() if view.more_to_come else everybody(view)

    result = ss.simulate(requests, policy(for_both), **options)
    assert (result.outcome, result.steps) == ("completed", 11)


def test_a_stall_can_be_recorded_instead():
    result = ss.simulate(THREE, policy(lambda view: ss.Plan()), on_stall="record")
    assert result.outcome == "stalled"
    assert {r.status for r in result.records} == {"unfinished"}
    assert result.output_tokens == 0


def test_circles_can_be_recorded_instead_and_end_where_nothing_else_ends_them():
    run = partial(ss.simulate, [ss.Request(0, 0, 10, 5)], policy(sisyphus), on_stall="record")
    assert run().outcome == "stalled"
    assert run(max_steps=9000).outcome == "max_steps"


@pytest.mark.parametrize(("base_ms", "outcome"), [(0, "stalled"), (1, "completed")])
def test_who_is_to_come_ends_no_stall_if_no_time_passes(base_ms, outcome):
    def rests(view):
        assert view.step < 1000
        return everybody(view) if len(view.waiting) > 1 or view.running else ss.Plan()

    requests = [ss.Request(0, 0, 10, 5), ss.Request(1, 20 * 10**6, 10, 5)]
    cost = ss.cost.Affine(base_ms=base_ms)
    run = ss.simulate(requests, policy(rests), cost=cost, on_stall="record", stall_steps=10)
    assert run.outcome == outcome


def test_a_short_pause_is_no_stall():
    result = ss.simulate(THREE, policy(later(lambda view: ss.Plan(), step=1)))
    assert len(result.finished) == 3


def test_two_empty_steps_between_any_two_are_no_stall():
    def lazy(view):
        return everybody(view) if view.step % 3 == 0 else ss.Plan()

    assert len(ss.simulate(THREE, policy(lazy)).finished) == 3


# --- the errors themselves


@pytest.mark.parametrize("what", ["scheduled", "preempted", "rejected"])
def test_a_number_that_is_no_id_is_told_without_it(what):
    """Python refuses to print one so long."""
    error = stopped(lambda view: ss.Plan(**{what: [(HUGE, 1) if what == "scheduled" else HUGE]}))
    assert (error.request, error.step) == (None, 0)


def test_a_plan_error_is_data_and_can_be_sent():
    error = stopped(lambda view: ss.Plan([(1, 99)]))
    copy = pickle.loads(pickle.dumps(error))
    assert broken(copy) == broken(error)
    assert (copy.detail, str(copy)) == (error.detail, str(error))


def test_every_rule_has_a_sentence():
    for rule, sentence in RULES.items():
        assert rule.isidentifier()
        assert len(sentence) > 20


def test_a_policy_s_own_exception_keeps_its_own_traceback():
    def crash(view):
        for r in view.running:
            raise KeyError(r.id)
        return everybody(view)

    with pytest.raises(ss.PolicyError) as caught:
        ss.simulate(THREE, policy(crash))
    error = caught.value
    assert (error.policy, error.step, error.request) == ("Faulty", 1, 0)
    assert isinstance(error.__cause__, KeyError)
    shown = "\n".join(error.lines())
    assert "KeyError: 0" in shown
    assert "in crash" in shown
    assert "engine.py" not in shown
    assert "step 1, request 0" in shown
    assert error._render_traceback_() == error.lines()
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.step, copy.request, type(copy.__cause__)) == (1, 0, KeyError)


# --- predictions


class Predicts:
    knows_output_length = True

    def __init__(self, answer):
        self.answer = answer

    def predict(self, prompt_len, output_len):
        return self.answer(prompt_len)

    def plan(self, view):
        return everybody(view)


def test_an_exception_in_a_prediction_is_the_policy_s_own():
    with pytest.raises(ss.PolicyError) as caught:
        ss.simulate(THREE, Predicts(lambda prompt_len: 1 // 0))
    assert caught.value.request == 0
    assert "Predicts.predict failed in step 0, request 0" in str(caught.value)
    assert "engine.py" not in "\n".join(caught.value.lines())


@pytest.mark.parametrize("answer", [0, -1, 1.5, "3", None, True])
def test_a_prediction_is_a_number_of_tokens(answer):
    with pytest.raises(ss.InputError, match="predict"):
        ss.simulate(THREE, Predicts(lambda prompt_len: answer))
