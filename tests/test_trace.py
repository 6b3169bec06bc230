"""The step record, as JSON lines and in the trace format that browsers read."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings

import servesim as ss
from servesim.trace import ENGINE_TRACK, REQUEST_TRACK, chrome_trace, json_lines, segments
from tests import strategies

quick = settings(max_examples=80, derandomize=True, deadline=None)


def recorded(run):
    requests, policy, options = run
    return ss.simulate(requests, policy, record_steps=True, **options)


def of_request(stretches, rid):
    return [s for s in stretches if s.id == rid]


# --- segments


@given(run=strategies.runs())
@quick
def test_a_request_s_stretches_cover_its_life_without_gap_or_overlap(run):
    result = recorded(run)
    stretches = segments(result)
    assert {s.id for s in stretches} <= {r.id for r in run[0]}
    for record in result.records:
        mine = of_request(stretches, record.request.id)
        clock = record.request.arrival_ns
        for stretch in mine:
            assert stretch.start_ns == clock
            assert stretch.end_ns > clock
            clock = stretch.end_ns
        assert clock == record.last_token_ns
        assert sum(s.end_ns - s.start_ns for s in mine) == record.e2e_ns
        for a, b in pairwise(mine):
            assert a.kind != b.kind  # or they would be one


@given(run=strategies.runs())
@quick
def test_a_request_computes_in_the_steps_that_schedule_it_and_in_no_others(run):
    result = recorded(run)
    stretches = segments(result)
    for step in result.step_records:
        if not step.cost_ns:
            continue
        kinds = {s.id: "decode" if s.decode else "prefill" for s in step.scheduled}
        at_work = {
            s.id: s.kind
            for s in stretches
            if s.start_ns <= step.start_ns
            and step.end_ns <= s.end_ns
            and s.kind in ("prefill", "decode")
        }
        assert at_work == kinds


@given(run=strategies.runs())
@quick
def test_a_request_waits_until_it_is_first_scheduled(run):
    result = recorded(run)
    stretches = segments(result)
    for record in result.records:
        mine = of_request(stretches, record.request.id)
        waited = record.first_scheduled_ns - record.request.arrival_ns
        if waited:
            assert mine[0].kind == "waiting"
            assert mine[0].end_ns - mine[0].start_ns >= waited
        assert all(s.kind != "waiting" for s in mine[1:])
        assert any(s.kind == "preempted" for s in mine) <= (record.preemptions > 0)


def test_the_kinds_of_stretches():
    requests = [ss.Request(0, 0, 4, 4), ss.Request(1, 500_000, 8, 2)]
    result = ss.simulate(
        requests,
        ss.policies.Chunked(token_budget=4),
        cost=ss.cost.Affine(base_ms=1),
        record_steps=True,
    )
    assert [tuple(s) for s in segments(result)] == [
        (0, "prefill", 0, 1_000_000),
        (0, "decode", 1_000_000, 4_000_000),
        (1, "waiting", 500_000, 1_000_000),
        (1, "prefill", 1_000_000, 4_000_000),
        (1, "decode", 4_000_000, 5_000_000),
    ]


def test_a_preempted_and_a_stalled_request():
    def plan(view):
        r0 = next((r for r in [*view.running, *view.waiting] if r.id == 0), None)
        others = [(r.id, r.missing) for r in [*view.waiting, *view.running] if r.id == 1]
        if view.step == 1:
            return ss.Plan(others, preempted=[0])
        if view.step == 4:
            return ss.Plan(others)
        return ss.Plan([(0, r0.missing)] if r0 and view.step != 2 else others)

    policy = type("P", (), {"plan": lambda self, view: plan(view)})()
    requests = [ss.Request(0, 0, 4, 5), ss.Request(1, 0, 4, 3)]
    cost = ss.cost.Affine(base_ms=1)
    result = ss.simulate(requests, policy, cost=cost, record_steps=True)
    assert [(s.kind, s.start_ns // 10**6) for s in of_request(segments(result), 0)] == [
        ("prefill", 0),
        ("preempted", 1),
        ("prefill", 3),
        ("stalled", 4),
        ("decode", 5),
    ]


# --- Chrome's format

FIELDS = {
    "M": {"ph", "pid", "tid", "name", "args"},
    "X": {"ph", "pid", "tid", "name", "ts", "dur", "args"},
    "C": {"ph", "pid", "tid", "name", "ts", "args"},
}


def ns(us):
    return round(1000 * us)


@given(run=strategies.runs())
@quick
def test_the_trace_is_what_a_viewer_expects(run):
    result = recorded(run)
    trace = json.loads(json.dumps(chrome_trace(result)))
    assert trace.keys() == {"traceEvents", "displayTimeUnit", "otherData"}
    assert trace["displayTimeUnit"] == "ms"
    assert trace["otherData"]["policy"] == result.policy
    for event in trace["traceEvents"]:
        assert event.keys() == FIELDS[event["ph"]]
        assert event["pid"] in (ENGINE_TRACK, REQUEST_TRACK)
        assert type(event["tid"]) is int
        if event["ph"] != "M":
            assert event["ts"] >= 0
            assert event.get("dur", 0) >= 0
        if event["ph"] == "C":
            assert all(type(v) is int and v >= 0 for v in event["args"].values())
    named = {(e["name"], e["pid"], e["tid"]) for e in trace["traceEvents"] if e["ph"] == "M"}
    assert named >= {("thread_name", REQUEST_TRACK, r.id) for r in run[0]}
    assert named >= {("process_name", pid, 0) for pid in (ENGINE_TRACK, REQUEST_TRACK)}


@given(run=strategies.runs())
@quick
def test_engine_spans_follow_each_other_and_request_spans_fill_a_life(run):
    result = recorded(run)
    spans = [e for e in chrome_trace(result)["traceEvents"] if e["ph"] == "X"]
    engine = [e for e in spans if e["pid"] == ENGINE_TRACK]
    assert [e["name"] for e in engine] == [f"step {i}" for i in range(result.steps)]
    for a, b in pairwise(engine):
        assert ns(a["ts"]) + ns(a["dur"]) <= ns(b["ts"])
    for record in result.records:
        clock = record.request.arrival_ns
        for span in spans:
            if (span["pid"], span["tid"]) == (REQUEST_TRACK, record.request.id):
                assert ns(span["ts"]) == clock
                clock += ns(span["dur"])
        assert clock == record.last_token_ns


def test_engine_spans_are_back_to_back_while_there_is_work():
    result = ss.simulate(
        [ss.Request(i, 0, 50, 5) for i in range(9)], ss.policies.Chunked(), record_steps=True
    )
    engine = [
        e
        for e in chrome_trace(result)["traceEvents"]
        if e["ph"] == "X" and e["pid"] == ENGINE_TRACK
    ]
    clock = 0
    for span in engine:
        assert ns(span["ts"]) == clock
        clock += ns(span["dur"])
    assert clock == result.end_ns


@pytest.mark.parametrize(
    ("blocks", "counters"), [(None, {"requests"}), (99, {"requests", "KV blocks"})]
)
def test_free_blocks_are_counted_where_there_is_a_limit(blocks, counters):
    result = ss.simulate(
        ss.workload.poisson(5, prompt=20, output=5),
        ss.policies.Continuous(),
        kv=ss.KVCache(blocks),
        record_steps=True,
    )
    events = chrome_trace(result)["traceEvents"]
    assert {e["name"] for e in events if e["ph"] == "C"} == counters


def test_a_rejected_request_has_a_name_and_no_spans():
    requests = [ss.Request(0, 0, 5, 1), ss.Request(1, 0, 500, 1)]
    result = ss.simulate(
        requests, ss.policies.Naive(), kv=ss.KVCache(1), never_fits="reject", record_steps=True
    )
    assert {s.id for s in segments(result)} == {0}
    assert chrome_trace(result)


# --- JSON lines


@given(run=strategies.runs())
@quick
def test_every_step_is_one_line_of_json(run):
    result = recorded(run)
    lines = list(json_lines(result.step_records))
    assert len(lines) == result.steps
    for line, step in zip(lines, result.step_records, strict=True):
        assert "\n" not in line
        data = json.loads(line)
        assert data["index"] == step.index
        assert (data["start_ns"], data["cost_ns"]) == (step.start_ns, step.cost_ns)
        assert data["scheduled"] == [list(s) for s in step.scheduled]
        assert data["free_blocks"] == list(step.free_blocks)
        assert data["work"] == step.work._asdict()
        assert {int(rid): n for rid, n in data["blocks"].items()} == step.blocks
        assert (data["running"], data["waiting"]) == (step.running, step.waiting)
        assert (data["preempted"], data["finished"]) == (step.preempted, step.finished)


@pytest.mark.parametrize("name", ["naive", "static", "continuous"])
def test_lives_without_step_records(name):
    requests = ss.workload.poisson(n=30, rate=2, prompt=(1, 900), output=(1, 90), seed=3)
    policy = ss.policies.BUILT_IN[name]()
    stepwise = segments(ss.simulate(requests, policy, record_steps=True))
    assert segments(ss.simulate(requests, policy)) == stepwise


def test_preempted_lives_need_step_records():
    requests = [ss.Request(i, 0, 8, 40) for i in range(3)]
    result = ss.simulate(requests, ss.policies.VLLM(), kv=ss.KVCache(20, 4))
    assert result.preemptions
    with pytest.raises(ss.InputError, match="record_steps=True"):
        segments(result)
