"""Whatever is given by mistake: one clear sentence, or a right result.

The table has a row for every constructor and function that a reader, a student or an instructor
calls, and for every flag of the two command lines. They are found by looking: who adds one adds
its row.
"""

import dataclasses
import gzip
import importlib
import inspect
import io
import json
import math
import os
import pkgutil
import re
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import servesim as ss
from servesim import (
    audit,
    bound,
    cli,
    drill,
    evidence,
    exercises,
    explore,
    output,
    page,
    predict,
    reading,
    replay,
    spec,
    stepper,
    steps,
    sweep,
)
from servesim.compare import Comparison
from servesim.exercises import Ask
from servesim.grade import (
    assignment,
    assignments,
    checking,
    folder,
    gradescope,
    hidden,
    process,
    release,
    roster,
    source,
)
from servesim.grade import cli as grade_cli
from servesim.policies import BUILT_IN
from servesim.request import MAX_SECONDS, MAX_TOKENS, ns_from_s
from tests.bad_values import (
    ANY,
    EMPTY,
    FLAG,
    FUNCTION,
    NASTY,
    NONE,
    NOTHING,
    TEXT,
    Kind,
    a,
    clear,
    number,
    one_of,
    whole,
)

SMALL = [ss.Request(i, i, 20, 3) for i in range(3)]


@cache
def result():
    return ss.simulate(SMALL, ss.policies.VLLM(), kv=ss.KVCache(9), record_steps=True)


class InThisProcess(Executor):
    """Runs at once what it is given."""

    def __init__(self, jobs=1):
        pass

    def submit(self, fn, /, *args, **kwargs):
        done = Future()
        done.set_result(fn(*args, **kwargs))
        return done


def slider(min, max, step, default):
    return explore.explore(FIGURE, rate=(min, max, step, default))


def choices(options, default):
    return explore.explore(FIGURE, rate=(options, default))


EMPTY_DICT = one_of({})

# --- the library, by table


def through(made: Any) -> None:
    """Go through what is made while it is read."""
    if isinstance(made, Iterator):
        list(made)


@dataclass
class Row:
    """A good call, what each of its options may be, and how a sentence may name it instead."""

    good: dict[str, Any]
    kinds: dict[str, Kind]
    named: dict[str, tuple[str, ...]] = field(default_factory=dict)
    use: Callable[[Any], Any] = through  # what to do with what comes back
    skip: tuple[tuple[str, str], ...] = ()  # what would start processes, say


def runs(policy):
    return ss.simulate(SMALL, policy).summary()


RATE = number(5e-324)
LENGTHS = Kind("lengths", lambda v: (type(v) is int and v >= 1) or v == "7" or v == [1])
COUNT = whole(1, 10**8)
REQUESTS = NOTHING
GENERATED = {
    "n": COUNT,
    "rate": RATE,
    "prompt": LENGTHS,
    "output": LENGTHS,
    "seed": whole(-(2**63), 2**63 - 1),
}
COUNT_NAMED = {"n": ("number of requests",), "rate": ("rate", "arrival")}
FEW = whole(1, 10**4)
GENERATED = GENERATED | {"n": FEW}

VLLM_KINDS = {
    "max_num_batched_tokens": whole(1),
    "max_num_seqs": whole(1),
    "long_prefill_token_threshold": whole(0),
    "enable_chunked_prefill": FLAG,
    "policy": one_of("fcfs", "priority"),
    "scheduler_reserve_full_isl": FLAG,
    "watermark": Kind("share", lambda v: type(v) in (int, float) and 0 <= v < 1),
    "release": one_of("0.11.2", "0.33.0"),
}
POLICY_KINDS = VLLM_KINDS | {
    "batch_size": whole(1),
    "max_running": whole(1) | NONE,
    "token_budget": whole(1) | NONE,
    "chunk": whole(1) | NONE,
    "prefill_alone": FLAG,
    "wait_for_arrivals": FLAG,
    "reserve": one_of("oracle", "pow2", "max"),
    "max_len": whole(2),
    "patience_s": number(0, MAX_SECONDS),
    "error": number(0),
    "seed": whole(0, 2**63 - 1),
    "output_weight": number(0, 1e9),
    "target_ms": number(0),
    "prices": NOTHING,
}
PRICE = number(0, 10**18)

SLOTS = Row(
    {},
    {
        "requests": FEW,
        "slots": whole(1),
        "step_ms": PRICE,
        "prefill_us_per_tok": PRICE,
        "seed": GENERATED["seed"],
    },
    {"requests": ("number of requests",)},
)
ROWS: dict[Any, Row] = {
    cls: Row(
        {},
        {name: POLICY_KINDS[name] for name in inspect.signature(cls).parameters},
        use=runs,
    )
    for cls in BUILT_IN.values()
}
ROWS |= {
    ss.Request: Row(
        {"id": 0, "arrival_ns": 0, "prompt_len": 1, "output_len": 1},
        {
            "id": whole(-(2**63), 2**63 - 1),
            "arrival_ns": whole(0, MAX_SECONDS * 10**9),
            "prompt_len": whole(1, MAX_TOKENS),
            "output_len": whole(1, MAX_TOKENS),
            "priority": whole(-(2**63), 2**63 - 1),
            "tenant": TEXT,
        },
        use=lambda r: ss.simulate([r], ss.policies.VLLM(policy="priority")).summary(),
    ),
    ns_from_s: Row({"seconds": 1.0}, {"seconds": number(0, MAX_SECONDS), "what": ANY}),
    ss.KVCache: Row(
        {},
        {
            "blocks": whole(1, 10**15) | NONE,
            "block_size": whole(1, 10**15),
            "null_block": FLAG,
            "contiguous": FLAG,
        },
        use=lambda kv: ss.simulate(SMALL, ss.policies.Orca(), kv=kv, never_fits="reject").summary(),
    ),
    ss.cost.Affine: Row(
        {},
        {
            name: FLAG if name == "padding_priced_once" else PRICE
            for name in inspect.signature(ss.cost.Affine).parameters
        },
        use=lambda cost: ss.simulate(SMALL, ss.policies.VLLM(), cost=cost).summary(),
    ),
    ss.cost.Roofline: Row(
        {},
        {"model": one_of(*ss.cost.MODELS), "gpu": one_of(*ss.cost.GPUS), "gpus": whole(1)},
        use=lambda cost: ss.simulate(SMALL, ss.policies.VLLM(), cost=cost).summary(),
    ),
    ss.cost.kv_bytes: Row(
        {"layers": 1, "kv_heads": 1, "head_dim": 1},
        dict.fromkeys(("layers", "kv_heads", "head_dim"), whole(1)),
    ),
    ss.cost.Affine.lower_bound: Row(
        {"self": ss.cost.Affine(), "requests": SMALL},
        {"self": ANY, "requests": REQUESTS, "kv": NONE},
    ),
    ss.cost.Roofline.lower_bound: Row(
        {"self": ss.cost.Roofline(), "requests": SMALL},
        {"self": ANY, "requests": REQUESTS, "kv": NONE},
    ),
    bound.makespan_ns: Row(
        {"requests": SMALL, "prices": bound.Prices(1, 1, 1, 1, 1, 1)},
        {"requests": REQUESTS, "prices": NOTHING, "room": whole(1) | NONE},
    ),
    ss.workload.poisson: Row({}, GENERATED, COUNT_NAMED),
    ss.workload.gamma: Row({}, GENERATED | {"cv": number(0.001, 1000)}, COUNT_NAMED),
    ss.workload.toy: Row({}, {k: GENERATED[k] for k in ("n", "seed")}, COUNT_NAMED),
    ss.workload.slots: Row({}, {k: GENERATED[k] for k in ("n", "seed")}, COUNT_NAMED),
    ss.workload.sampler: Row(
        {"lengths": 1, "side": "prompt"},
        {"lengths": LENGTHS, "side": one_of("prompt", "output")},
        {"lengths": ("length",)},
    ),
    ss.workload.Stream: Row({"name": "toy"}, {"name": one_of("poisson")}, {"name": ("workload",)}),
    ss.workload.merge: Row(
        {"workloads": {"a": SMALL}},
        {"workloads": EMPTY_DICT, "priorities": NONE | EMPTY_DICT},
        {"priorities": ("priorit",)},
    ),
    ss.workload.load: Row({}, {"path": TEXT}),
    ss.workload.burstiness: Row({"requests": SMALL}, {"requests": EMPTY}),
    ss.simulate: Row(
        {"requests": SMALL, "policy": ss.policies.Naive()},
        {
            "requests": REQUESTS,
            "policy": NOTHING,
            "cost": NOTHING,
            "kv": NONE,
            "never_fits": one_of("error", "reject", "try"),
            "on_stall": one_of("error", "record"),
            "record_steps": FLAG,
            "skip": FLAG,
            "count_first_token": FLAG,
            "stamp_inside_step": FLAG,
            "max_model_len": whole(1) | NONE,
            "max_steps": whole(0) | NONE,
            "stall_steps": whole(1),
            "arrivals_by_step": FLAG,
            "on_done": NONE | FUNCTION,
        },
        {"requests": ("requests", "workload")},
        skip=(("on_done", "class"), ("on_done", "function")),
    ),
    ss.compare: Row(
        {"requests": SMALL, "policies": [ss.policies.Naive()]},
        {"requests": REQUESTS, "policies": NOTHING, "slo": NONE},
        {"requests": ("requests", "workload"), "policies": ("polic",)},
        skip=(("requests", "function"), ("requests", "class")),
        use=str,
    ),
    Comparison: Row({"results": [result()]}, {"results": EMPTY, "slo": NONE}, use=str),
    ss.capacity: Row(
        {"meets": lambda rate: rate < 3},
        {
            "meets": FUNCTION,
            "low": number(1e-6, 1e6),
            "high": number(1e-6, 1e6),
            "tolerance": number(0.001, 1),
        },
        skip=(("meets", "class"), ("meets", "function")),
    ),
    ss.SLO: Row(
        {},
        dict.fromkeys(("ttft_ms", "tpot_ms"), RATE | NONE),
        use=lambda slo: result().summary(slo),
    ),
    ss.metrics.Distribution: Row(
        {"counts": [(1, 1)]}, {"counts": EMPTY, "scale": whole(1)}, use=lambda d: d.row()
    ),
    ss.metrics.Distribution.of: Row(
        {"values": [1]}, {"values": EMPTY | one_of([1]), "scale": whole(1)}, use=lambda d: d.row()
    ),
    ss.metrics.Distribution.percentile: Row(
        {"self": ss.metrics.Distribution.of([1, 2]), "p": 1},
        {"self": ANY, "p": number(0, 100), "rule": one_of("linear", "mlperf", "toy")},
        {"p": ("percentile",)},
    ),
    ss.metrics.jain_index: Row({"amounts": [1]}, {"amounts": one_of([1])}),
    ss.Result.summary: Row({"self": result()}, {"self": ANY, "slo": NONE}),
    ss.Result.attainment: Row({"self": result(), "slo": ss.SLO()}, {"self": ANY, "slo": NOTHING}),
    ss.Result.goodput_req_s: Row(
        {"self": result(), "slo": ss.SLO()}, {"self": ANY, "slo": NOTHING}
    ),
    ss.Result.p99_within: Row({"self": result(), "slo": ss.SLO()}, {"self": ANY, "slo": NOTHING}),
    ss.Result.kv_split: Row({"self": result()}, {"self": ANY, "since": NONE}),
    ss.kv.block_map: Row(
        {"steps": result().step_records, "kv": ss.KVCache(9)}, {"steps": EMPTY, "kv": NOTHING}
    ),
    ss.trace.json_lines: Row({"steps": result().step_records}, {"steps": EMPTY}),
    ss.trace.segments: Row({"result": result()}, {"result": NOTHING}),
    ss.trace.chrome_trace: Row({"result": result()}, {"result": NOTHING}),
    ss.systems.toy_modes: Row({}, {k: GENERATED[k] for k in ("n", "seed")}, COUNT_NAMED),
    ss.systems.toy_report: Row({}, {k: GENERATED[k] for k in ("n", "seed")}, COUNT_NAMED),
    ss.systems.slot_modes: SLOTS,
    ss.systems.slot_report: SLOTS,
    spec.split: Row({"text": "a"}, {"text": TEXT}),
    spec.expand: Row({"text": "a"}, {"text": TEXT}),
    spec.policy: Row({"text": "naive"}, {"text": NOTHING}, {"text": ("policy",)}),
    spec.requests: Row({"text": "toy"}, {"text": NOTHING}, {"text": ("workload",)}),
    spec.prices: Row({"text": "toy"}, {"text": NOTHING}, {"text": ("cost",)}),
    spec.slo: Row({"text": "ttft_ms=1"}, {"text": NOTHING}, {"text": ("SLO",)}),
}

TRACE = {
    "vllm_version": "0.33.0",
    "config": {
        **dict.fromkeys(("max_num_batched_tokens", "max_num_seqs", "num_gpu_blocks"), 64),
        **dict.fromkeys(("max_model_len", "max_steps"), 99),
        **dict.fromkeys(("cost_base_us", "cost_prefill_us", "cost_decode_us"), 1),
        "stall_steps": 3,
        "block_size": 16,
        "long_prefill_token_threshold": 0,
        "enable_chunked_prefill": True,
        "policy": "fcfs",
    },
    "effective": {},
    "arrivals": "arrival_us",
    "requests": [[0, 0, 20, 3, 0]],
}
FIGURE = "servesim.figs:naive_load"
DRILL = "servesim.exercises:waits"
CHECKED = Path(__file__).parents[1] / "assignments" / "warmup" / "policy.py"
SEED = whole(0, 99)
ENTRY = roster.Entry("a")
SUBMISSION = roster.Submission("a", CHECKED, 0.0)
CASE = {"name": "busy", "requests": tuple(SMALL)}
RULE = {"name": "one", "points": 1, "demand": "D.", "hint": "H.", "check": lambda run: None}
POINTS = number(0)

ROWS |= {
    replay.read: Row({}, {"path": TEXT}),
    replay.replay: Row({"trace": TRACE}, {"trace": NOTHING, "policy": NOTHING}),
    replay.setup: Row({"trace": TRACE}, {"trace": NOTHING, "policy": NOTHING}),
    replay.steps: Row({"result": result()}, {"result": NOTHING}),
    replay.first_difference: Row(
        {"result": result(), "trace": {"steps": []}}, {"result": NOTHING, "trace": NOTHING}
    ),
    sweep.sweep: Row(
        {"policies": "naive", "workloads": "poisson:n=1", "executor": InThisProcess()},
        {
            "policies": NOTHING,
            "workloads": NOTHING,
            "costs": NOTHING,
            "kv_blocks": whole(1) | NONE | one_of([1], [None]),
            "slos": NONE | one_of([None]),
            "block_size": whole(1) | one_of([1]),
            "never_fits": one_of("error", "reject"),
            "out": NONE,
            "fresh": FLAG,
            "executor": NONE,
            "jobs": whole(1) | NONE,
        },
        {
            "policies": ("polic",),
            "workloads": ("workload",),
            "costs": ("cost",),
            "slos": ("SLO", "slo"),
            "kv_blocks": ("blocks",),
            "out": ("out",),
        },
        skip=(("executor", "None"),),
    ),
    sweep.as_text: Row(
        {"rows": [], "suffix": ".csv"}, {"rows": EMPTY, "suffix": one_of(".csv", ".jsonl")}
    ),
    spec.value_of: Row({"text": ""}, {"text": TEXT}),
    spec.file_in: Row({"text": ""}, {"text": TEXT}),
    explore.explore: Row(
        {"target": FIGURE},
        {
            "target": NOTHING,
            "fixed": NONE | EMPTY_DICT,
            "caption": TEXT,
            "labels": NONE | EMPTY_DICT,
            "id": NONE | one_of("nosuch"),
        },
        dict.fromkeys(("target", "fixed"), ("explore",)),
        skip=(("target", "function"),),
    ),
    explore.render: Row(
        {"target": FIGURE, "values": {}},
        {"target": NOTHING, "values": EMPTY_DICT, "defaults": NONE | EMPTY_DICT, "id": TEXT | NONE},
        dict.fromkeys(("target", "values"), ("explore",)),
        skip=(("target", "function"),),
    ),
    slider: Row(
        {"min": 0, "max": 1, "step": 0.5, "default": 0},
        dict.fromkeys(("min", "max", "step", "default"), number(-1e15, 1e15)),
        dict.fromkeys(("min", "max", "step", "default"), ("rate",)),
    ),
    choices: Row(
        {"options": [0.5, 1.0], "default": 1.0},
        {"options": one_of([1]), "default": one_of(0.5, 1, 1.0)},
        dict.fromkeys(("options", "default"), ("rate",)),
    ),
    explore.Slider.clean: Row(
        {"self": explore.Slider("rate", "Rate", 0, 4, 1, 0), "value": 0},
        {"self": ANY, "value": number(0, 4)},
        {"value": ("rate",)},
    ),
    explore.Choice.clean: Row(
        {"self": explore.Choice("mode", "Mode", ("a", 1), "a"), "value": "a"},
        {"self": ANY, "value": one_of(1, 1.0)},
        {"value": ("mode",)},
    ),
    steps.Steps: Row(
        {},
        {"default": whole(0, 10**6) | one_of(1.0), "name": ANY, "label": ANY},
        {"default": ("step",)},
        use=lambda control: control.check(),
    ),
    steps.Steps.clean: Row(
        {"self": steps.Steps(), "value": 0},
        {"self": ANY, "value": whole(0, 10**6) | one_of(1.0)},
        {"value": ("step",)},
    ),
    predict.predict: Row(
        {"question": "What?", "choices": {"this": "No.", "that": "Yes."}, "answer": "b"},
        {"question": one_of("nosuch", "7", "a\nb", "\0"), "choices": NOTHING, "answer": NOTHING},
    ),
    predict.Prediction.feedback: Row(
        {
            "self": predict.predict("What?", {"this": "No.", "that": "Yes."}, answer="b"),
            "choice": "a",
        },
        {"self": ANY, "choice": NOTHING},
    ),
    drill.drill: Row(
        {"target": DRILL}, {"target": NOTHING, "id": NONE | TEXT}, {"target": ("explore", "target")}
    ),
    drill.Drill.exercise: Row(
        {"self": drill.drill(DRILL), "seed": 1}, {"self": ANY, "seed": number(0, 99)}
    ),
    Ask.check: Row({"self": Ask("Wait", "ms", 7), "given": "7"}, {"self": ANY, "given": TEXT}),
    exercises.Exercise.reply: Row(
        {"self": exercises.waits(0), "given": ["1", "2", "3"]},
        {"self": ANY, "given": NONE},
        {"given": ("given", "exercise")},
    ),
    **{
        getattr(exercises, name): Row({}, {"seed": whole(-(2**63), 2**63 - 1)})
        for name in exercises.__all__
        if name[0].islower()
    },
    stepper.stepper: Row(
        {"run": SMALL, "policies": "naive"},
        {
            "run": NOTHING,
            "policies": NOTHING,
            "step": whole(0, 10**6) | one_of(1.0),
            "caption": TEXT,
            "id": TEXT,
        },
        {"run": ("run", "workload", "stepper"), "policies": ("polic",)},
    ),
    page.answer: Row({"request": "{}"}, {"request": ANY}),
    evidence.Check: Row(
        {"what": "figure", "ours": 1.0, "published": 1.0, "tolerance": 0.1},
        {
            "what": TEXT,
            "ours": number(),
            "published": number(1e-8),
            "tolerance": number(0),
            "unit": TEXT,
        },
        {"published": ("figure",)},
        use=lambda check: check.row(),
    ),
    evidence.verdict: Row(
        {"checks": [evidence.Check("figure", 1.0, 1.0, 0.1)]},
        {"checks": NOTHING, "named": whole(0)},
        {"checks": ("check",)},
    ),
    evidence.interval: Row(
        {"values": [1.0] * 10},
        {"values": NOTHING, "level": NOTHING},
        dict.fromkeys(("values", "level"), ("values", "level", "interval")),
    ),
    evidence.mean_wait_s: Row(
        {"rate": 0.1, "services_s": [1.0]},
        {"rate": one_of(0.5, 1e-308, 0), "services_s": one_of([1])},
        {"rate": ("rate", "load")},
    ),
    evidence.describe: Row(
        {"requests": ss.workload.poisson(5)}, {"requests": NOTHING, "window_s": number(5e-324)}
    ),
    # The grader, for students and instructors.
    checking.check: Row(
        {"file": CHECKED, "assignment": "warmup"}, {"file": NOTHING, "assignment": NOTHING}
    ),
    assignments.find: Row({"name": "warmup"}, {"name": NOTHING}, {"name": ("assignment",)}),
    assignment.literal: Row(
        {"text": "A = 1", "name": "A"},
        {"text": NOTHING, "name": one_of("A")},
        dict.fromkeys(("text", "name"), ("name", "the file")),
    ),
    assignment.Case: Row(
        CASE,
        {
            "name": TEXT,
            "requests": EMPTY,
            "options": a(dict),
            "cost": NOTHING,
            "kv": NOTHING,
            "never_fits": one_of("error", "reject", "try"),
            "may_stall": FLAG,
            "max_steps": whole(1),
        },
    ),
    assignment.Invariant: Row(
        RULE,
        {
            "name": TEXT,
            "points": POINTS,
            "demand": TEXT,
            "hint": TEXT,
            "check": FUNCTION,
            "cases": a(list, tuple, dict),
            "engine_rules": a(list, tuple, dict),
        },
    ),
    assignment.FileRule: Row(
        RULE,
        {
            "name": TEXT,
            "points": POINTS,
            "demand": TEXT,
            "hint": TEXT,
            "check": FUNCTION,
            "runs": whole(0),
            "last_hint": TEXT,
        },
    ),
    assignment.Performance: Row(
        {k: v for k, v in RULE.items() if k != "check"} | {"measure": len, "bound": len},
        {
            "name": TEXT,
            "points": POINTS,
            "demand": TEXT,
            "hint": TEXT,
            "measure": FUNCTION,
            "bound": FUNCTION,
            "unit": TEXT,
            "cases": a(list, tuple, dict),
            "higher_is_better": FLAG,
            "full_at": number(),
            "none_at": number(),
        },
    ),
    assignment.Assignment: Row(
        {
            "name": "mine",
            "title": "T",
            "task": "T.",
            "rules": (assignment.Invariant(**RULE),),
            "cases": (assignment.Case(**CASE),),
            "reference": lambda case: ss.policies.Naive(),
        },
        {
            "name": TEXT,
            "title": TEXT,
            "task": TEXT,
            "rules": NOTHING,
            "cases": NOTHING,
            "reference": FUNCTION,
            "class_name": TEXT,
            "hours": number(0),
        },
        {"rules": ("rule",), "cases": ("case",)},
    ),
    process.Limits: Row(
        {},
        {
            name: (whole if name in ("memory", "output", "answer") else number)(0)
            for name in inspect.signature(process.Limits).parameters
        },
    ),
    folder.Task: Row(
        {"assignment": "warmup"},
        {
            "assignment": NOTHING,
            "hidden": NONE,
            "seed": whole(-(2**63), 2**63 - 1) | NONE,
            "unsafe": FLAG,
            "limits": NOTHING,
        },
        use=lambda task: task.cases(),
    ),
    folder.Terms: Row({}, {"due": number(-1e12, 1e12) | NONE, "per_day": number(0, 100)}),
    folder.read_csv: Row({}, {"file": TEXT}),
    gradescope.submitted: Row({}, {"folder": TEXT}),
    gradescope.autograder: Row(
        {"assignment": assignments.find("warmup"), "hidden": None, "seed": None},
        {"assignment": NOTHING, "hidden": NONE, "seed": whole(-(2**63), 2**63 - 1) | NONE},
    ),
    hidden.hidden_cases: Row(
        {
            "assignment": assignments.find("warmup"),
            "folder": CHECKED.parents[2] / "instructor",
            "seed": None,
        },
        {"assignment": NOTHING, "folder": NOTHING, "seed": whole(-(2**63), 2**63 - 1) | NONE},
        {"folder": ("hidden",)},
    ),
    release.release: Row(
        {"target": "out", "root": "."},
        {"target": TEXT, "root": TEXT | NONE},
        dict.fromkeys(("target", "root"), ("release", "target", "root")),
        skip=(("root", "None"),),
    ),
    release.strip: Row({"text": "", "named": "a.py"}, {"text": TEXT, "named": ANY}),
    roster.moment: Row({"text": "2026-10-01T23:59"}, {"text": NOTHING}, {"text": ("--due",)}),
    roster.read_roster: Row({}, {"file": TEXT}, {"file": ("--roster",)}),
    roster.submissions: Row({}, {"folder": TEXT}, {"folder": ("submissions",)}),
    roster.entries: Row(
        {"found": [SUBMISSION], "roster": None}, {"found": EMPTY, "roster": NONE | a(dict)}
    ),
    roster.days_late: Row(
        {"submission": SUBMISSION, "due": 1.0},
        {"submission": NOTHING, "due": number(-1e12, 1e12) | NONE},
    ),
    source.read: Row({}, {"file": TEXT}),
}


def names_of(fn):
    """Return a function's options: all but `self` and what it takes without a name."""
    options = inspect.signature(fn).parameters.values()
    return [o for o in options if o.name != "self" and o.kind is not o.VAR_KEYWORD]


def call(fn, given):
    """Call a function with options by name, also those that have to be given by place."""
    given = dict(given)
    by_place = [o.name for o in names_of(fn) if o.kind is o.POSITIONAL_ONLY]
    return fn(*[given.pop(name) for name in by_place if name in given], **given)


@pytest.fixture
def no_hang():
    """End what would go on for ever, where that can be done."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def hangs(*_):
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def faults(make, fits, *names):
    """Say what is wrong with how a value is taken; nothing if it is used, or told clearly."""
    try:
        make()
    except ss.InputError as error:
        return clear(str(error), *(() if fits else names))
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return "" if fits else "is taken without a word"


@pytest.mark.usefixtures("no_hang")
@pytest.mark.parametrize(
    ("fn", "option"),
    [
        pytest.param(fn, option, id=f"{fn.__module__}.{fn.__qualname__}-{option}")
        for fn, row in ROWS.items()
        for option in row.kinds
        if option != "self"
    ],
)
def test_an_option_is_right_or_told(fn, option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row, wrong = ROWS[fn], {}
    for label, value in NASTY.items():
        if (option, label) not in row.skip:
            found = faults(
                lambda value=value: row.use(call(fn, row.good | {option: value})),
                row.kinds[option].fits(value),
                option,
                *row.named.get(option, ()),
            )
            wrong |= {label: found} if found else {}
    assert not wrong, f"{option} is a {row.kinds[option].says}"


@pytest.mark.parametrize("fn", ROWS, ids=lambda fn: fn.__qualname__)
def test_every_option_is_in_the_table(fn):
    assert {o.name for o in names_of(fn)} == ROWS[fn].kinds.keys() - {"self"}


def test_the_table_notices_what_is_wrong():
    assert faults(lambda: ss.Request(0, 0, 1, 1), False) == "is taken without a word"
    assert "TypeError" in faults(lambda: len(3), False)
    for sentence in ("rate bad", "a\nb c d e f", "rate: it is an odd ValueError"):
        assert clear(sentence, "rate")
    assert clear("rate must be a number, not 'x'", "cost")
    assert not clear("rate must be a number, not 'x'", "rate")


OWN = "called by the simulator with what it has made or looked at"
BOOK = "called by the book's pages: a mistake there keeps its traceback, for its author"
GRADER = "called by the grader with what it has read and looked at"

INNER_MODULES = {
    **dict.fromkeys(("arrivals", "audit", "batch", "job", "ledger", "runs", "stretch"), OWN),
    **dict.fromkeys(("checks", "errors", "output", "reading", "policies.draft"), OWN),
    **dict.fromkeys(("book", "lives", "plots", "story", "studies"), BOOK),
    **dict.fromkeys(("figs", "svg", "exercises", "grade.pages"), BOOK),
    **dict.fromkeys(("grade.child", "grade.isolation", "grade.judge", "grade.load"), GRADER),
    **dict.fromkeys(("grade.report", "grade.shrink", "grade.assignments"), GRADER),
    **dict.fromkeys(("cli", "grade.cli"), "the command lines, whose flags are below"),
}
INNER = {
    **dict.fromkeys(("bound.Prices", "capacity.Capacity", "table.told"), OWN),
    **dict.fromkeys(("capacity.grid", "table.text_table", "table.html_table"), OWN),
    **dict.fromkeys(("cost.Work", "cost.Cost", "cost.Model", "cost.Gpu"), OWN),
    **dict.fromkeys(("cost.shortcut", "cost.whole", "drill.Drill", "explore.Explorer"), OWN),
    **dict.fromkeys(("engine.Engine", "engine.SupportsPlan", "explore.Fixed"), OWN),
    **dict.fromkeys(("explore.Slider", "explore.Choice", "explore.figure_id"), OWN),
    **dict.fromkeys(("explore.sentence", "explore.in_kernel", "explore.mimebundle"), OWN),
    **dict.fromkeys(("kv.blocks_for", "kv.so_many", "kv.power_of_two", "kv.Snapshot"), OWN),
    **dict.fromkeys(("kv.BlockPool", "kv.BuddyPool", "kv.Room", "metrics.KVSplit"), OWN),
    **dict.fromkeys(("metrics.Result", "page.parameter", "plan.asdict_shallow"), OWN),
    **dict.fromkeys(("plan.Queue", "plan.View", "plan.everything", "predict.Prediction"), OWN),
    "plan.Plan": "what is in it the audit tells (tests/test_audit.py)",
    **dict.fromkeys(("policies.base.Policy", "policies.continuous.admissible"), OWN),
    **dict.fromkeys(("policies.shortest_first.left", "policies.vllm.Release"), OWN),
    **dict.fromkeys(("request.Progress", "request.new_progress", "spec.build"), OWN),
    **dict.fromkeys(("spec.choose", "sweep.Point", "sweep.grid", "sweep.check"), OWN),
    **dict.fromkeys(("sweep.fingerprint", "sweep.simulator_digest", "sweep.Processes"), OWN),
    **dict.fromkeys(("sweep.simulator_sources", "systems.toy_rows", "systems.tpot_ms"), OWN),
    **dict.fromkeys(("systems.slot_lines", "trace.Scheduled", "trace.StepRecord"), OWN),
    "trace.Segment": OWN,
    **dict.fromkeys(("grade.assignment.Failure", "grade.assignment.Run"), GRADER),
    **dict.fromkeys(("grade.checking.Report", "grade.checking.where"), GRADER),
    **dict.fromkeys(("grade.checking.first_answer", "grade.checking.counterexample"), GRADER),
    **dict.fromkeys(("grade.checking.quiet", "grade.folder.Graded", "grade.folder.way"), GRADER),
    **dict.fromkeys(("grade.folder.plain", "grade.folder.read_plain"), GRADER),
    **dict.fromkeys(("grade.folder.score", "grade.folder.forgery"), GRADER),
    **dict.fromkeys(("grade.folder.grade_file", "grade.folder.grade"), GRADER),
    **dict.fromkeys(("grade.folder.as_csv", "grade.folder.differences"), GRADER),
    **dict.fromkeys(("grade.gradescope.results", "grade.gradescope.as_json"), GRADER),
    **dict.fromkeys(("grade.hidden.folder_of", "grade.hidden.seed_in"), GRADER),
    "grade.process.Child": GRADER,
    **dict.fromkeys(("grade.process.sweep_up", "grade.release.solutions"), GRADER),
    **dict.fromkeys(("grade.roster.Submission", "grade.roster.Entry"), GRADER),
    **dict.fromkeys(("grade.roster.counting", "grade.roster.utc"), GRADER),
    **dict.fromkeys(("grade.roster.printable", "grade.roster.cell"), GRADER),
    **dict.fromkeys(("grade.source.Refused", "grade.source.check"), GRADER),
    "grade.source.copied_from": GRADER,
}
"""What has no row, and why."""


def public():
    """Yield the name of every public function and class, and it."""
    for info in pkgutil.walk_packages(ss.__path__, "servesim."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for name, thing in vars(module).items():
            own = getattr(thing, "__module__", "") == info.name and callable(thing)
            if own and not name.startswith("_"):
                yield f"{info.name}.{name}".removeprefix("servesim."), thing


def is_inner(name):
    parts = name.split(".")
    return name in INNER or any(".".join(parts[:i]) in INNER_MODULES for i in (1, 2))


def test_whoever_adds_a_function_or_class_adds_its_row():
    known = dict(public())
    assert [name for name, thing in known.items() if thing not in ROWS and not is_inner(name)] == []
    assert [name for name in INNER if name not in known] == []
    for name in ss.__all__:  # what a reader sees first has a row, or is a class of results
        thing = getattr(ss, name)
        assert (
            not callable(thing) or f"{thing.__module__}.{name}".removeprefix("servesim.") in known
        )


# --- the command lines, by table

TEXTS = (
    *("", " ", "nosuch", "0", "1", "-1", "0.5", "1e3", "nan", "inf", "-inf", "1e999", "1e-999"),
    *("9" * 400, "9" * 5000, "true", "none", "a\nb", "\0", "\x1b[31m", "\udcff", "ü", "a=b", "a:b"),
    *(":", ",", "{", "{a,b}", "..", "/", "/dev/null", "no/such/folder/x.csv"),
)
FILES = (
    *("", " ", "a\nb", "\0", "\udcff", "9" * 400, "9" * 5000, "..", "/", "/dev/null", "ü"),
    "no/x",
)
"""What a file could be called; the rest of `TEXTS` is the same to it."""

PLACES = tuple(text for text in FILES if text != "/")

WHOLE, NUMBERS = ("1",), ("0", "1", "0.5", "1e3", "1e-999")
SEEDS = ("0", "1", "-1")
FREE = ("nosuch", " ", "a\nb", "\udcff", "ü")
TINY = ("--workload", "poisson:n=2,prompt=2,output=1")


@dataclass
class Flag:
    """What a flag takes of all texts, and how a sentence may name it instead."""

    takes: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    texts: tuple[str, ...] = TEXTS


SPEC = {
    "--policy": Flag(named=("policy",)),
    "--workload": Flag(named=("workload", "length")),
    "--cost": Flag(named=("cost",)),
    "--kv-blocks": Flag(WHOLE, ("blocks",)),
    "--slo": Flag(named=("SLO", "slo")),
    "--block-size": Flag(WHOLE, ("block_size",)),
    "--never-fits": Flag(),
}
HIDDEN = {"--hidden": Flag(texts=FILES), "--seed": Flag(SEEDS[:2]), "--unsafe": Flag()}
NAME = {"--assignment": Flag(named=("assignment",))}

FLAGS: dict[tuple[str, str], tuple[tuple[str, ...], dict[str, Flag]]] = {
    ("servesim", "toy"): (
        ("-n", "1"),
        {
            "-n": Flag(WHOLE, ("number of requests",)),
            "--seed": Flag(SEEDS, ("seed",)),
            "--json": Flag(),
        },
    ),
    ("servesim", "slots"): (
        ("--requests", "1"),
        {
            "--requests": Flag(WHOLE, ("number of requests",)),
            "--slots": Flag(WHOLE, ("slots",)),
            "--step-ms": Flag(NUMBERS, ("step_ms",)),
            "--prefill-us-per-tok": Flag(NUMBERS, ("prefill_us_per_tok",)),
            "--seed": Flag(SEEDS, ("seed",)),
            "--json": Flag(),
        },
    ),
    ("servesim", "run"): (
        ("--policy", "naive", *TINY),
        SPEC | {"--json": Flag(), "--trace-out": Flag(FREE, texts=FILES)},
    ),
    ("servesim", "compare"): (("--policy", "naive", *TINY), SPEC | {"--json": Flag()}),
    ("servesim", "sweep"): (
        ("--policy", "naive", *TINY),
        SPEC
        | {
            "--kv-blocks": Flag((*WHOLE, "none"), ("blocks",)),
            "--jobs": Flag(WHOLE, ("jobs",)),
            "--dask": Flag(
                texts=("", "nosuch", "a:b", "a:0", "a:9999999", "a\nb", "x://a:1", ":1")
            ),
            "--out": Flag(texts=TEXTS, named=("output", "out")),
            "--resume": Flag(),
            "--fresh": Flag(),
        },
    ),
    ("servesim", "replay"): ((), {"FILE": Flag(texts=FILES)}),
    ("grade", "check"): (
        ("work/policy.py", "--assignment", "warmup"),
        {
            "FILE": Flag(("/dev/null",), texts=FILES),
            **NAME,
            "--html": Flag(FREE, texts=FILES),
            "--json": Flag(),
            "--isolated": Flag(),
        },
    ),
    ("grade", "release"): (
        (),
        {"DIR": Flag(("new", "no/x"), texts=("new", "", "\0", "..", "9" * 400, "no/x"))},
    ),
    ("grade", "grade"): (
        ("work", "--assignment", "warmup", "--out", "grades.csv", "--unsafe"),
        {
            "DIR": Flag(("",), texts=PLACES),
            **NAME,
            "--out": Flag(FREE, texts=FILES),
            **HIDDEN,
            "--roster": Flag(texts=FILES),
            "--due": Flag(),
            "--late-percent": Flag((*NUMBERS[:3], "1e-999")),
            "--jobs": Flag((*WHOLE, "9" * 400), ("jobs",)),
            "--feedback": Flag((*FREE, "", "..", "no/x"), texts=PLACES),
            "--fresh": Flag(),
        },
    ),
    ("grade", "results"): (
        ("work", "--assignment", "warmup", "--out", "results.json", "--unsafe"),
        {"DIR": Flag(("", ".."), texts=PLACES), **NAME, "--out": Flag(FREE, texts=FILES), **HIDDEN},
    ),
    ("grade", "gradescope"): (
        ("out", "--assignment", "warmup"),
        {
            "FILE": Flag((*FREE, "", "..", "no/x"), texts=PLACES),
            **NAME,
            "--hidden": HIDDEN["--hidden"],
            "--seed": HIDDEN["--seed"],
        },
    ),
}

MAINS = {"servesim": cli.main, "grade": grade_cli.main}
PARSERS = {"servesim": cli.parser, "grade": grade_cli.parser}


def commands(program):
    """Return the parsers of a program's commands."""
    (found,) = (a for a in PARSERS[program]()._actions if isinstance(a.choices, dict))
    return found.choices


def told_wrong(main, argv, good, capsys, *names):
    """Say what is wrong with how a command line is answered."""
    try:
        status = main(argv)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"[:200]
    out, err = capsys.readouterr()
    if good:
        return "" if status in (0, 1) and "Traceback" not in err else f"{status}: {err[:200]}"
    sentence = re.fullmatch(r"servesim(?:\.grade)?: (.*)\n", err)
    if status != 2 or out or sentence is None:
        return f"{status}, prints {out[:50]!r} and {err[:200]!r}"
    return clear(sentence[1], *names)


@pytest.mark.usefixtures("no_hang")
@pytest.mark.parametrize(
    ("program", "command", "flag"),
    [(*key, flag) for key, (_, flags) in FLAGS.items() for flag in flags],
    ids=lambda part: part,
)
def test_a_flag_is_right_or_told(program, command, flag, here, capsys):
    given, flags = FLAGS[program, command]
    row, wrong = flags[flag], {}
    for text in row.texts:
        argv = [command, text, *given[1:]]
        if flag.startswith("-"):
            argv = [command, *given, *([f"{flag}={text}"] if flag[1] == "-" else [flag, text])]
        names = (flag, flag.strip("-"), *row.named, *([repr(text)[1:-1]] if text else []))
        names = () if row.texts in (FILES, PLACES) or not flag.startswith("-") else names
        found = told_wrong(MAINS[program], argv, text in row.takes, capsys, *names)
        wrong |= {text[:60]: found} if found else {}
    assert not wrong, "\n".join(f"{text!r}: {what}" for text, what in wrong.items())


@pytest.mark.parametrize("program", PARSERS)
def test_whoever_adds_a_command_or_flag_adds_its_row(program):
    known = {
        (command, (action.option_strings or [action.metavar])[-1])
        for command, parser in commands(program).items()
        for action in parser._actions
        if "--help" not in action.option_strings
    }
    table = {
        (key[1], flag) for key, (_, flags) in FLAGS.items() if key[0] == program for flag in flags
    }
    assert table == known


# --- files, by table

CSV = b"arrival_s,prompt_len,output_len\n0.5,10,3\n0.5,20,4\n2,30,5\n"
AZURE = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
    b"2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
)
MOONCAKE = (
    b'{"timestamp": 0, "input_length": 9, "output_length": 5}\n'
    b'{"timestamp": 27, "input_length": 7, "output_length": 1}\n'
)
ONE_TRACE = json.dumps(TRACE).encode()
ROSTER = b"student,file\nann,a1\nbob,b2\n"
POLICY = b"from servesim.policies import Naive\n\n\nclass Mine(Naive):\n    pass\n"
STUDENTS = b"from servesim import Plan\n\n\nclass Policy:\n    pass\n"


def replayed(path):
    return [replay.steps(replay.replay(trace)) for trace in replay.read(path)]


def from_file(path):
    return repr(spec.policy(f"{path}:Mine"))


def read_student(path):
    try:
        text = source.read(path)
        source.check(text, "Policy")
        return text
    except source.Refused as reason:
        raise ss.InputError(str(reason)) from None


READERS: dict[str, tuple[Callable[[Path], Any], bytes]] = {
    "w.csv": (ss.workload.load, CSV),
    "w.csv.gz": (ss.workload.load, CSV),
    "azure.csv": (ss.workload.load, AZURE),
    "m.jsonl": (ss.workload.load, MOONCAKE),
    "m.jsonl.gz": (ss.workload.load, MOONCAKE),
    "t.json": (replayed, ONE_TRACE),
    "t.json.gz": (replayed, ONE_TRACE),
    "t.jsonl.gz": (replayed, ONE_TRACE + b"\n" + ONE_TRACE),
    "roster.csv": (roster.read_roster, ROSTER),
    "policy.py": (from_file, POLICY),
    "student.py": (read_student, STUDENTS),
}
"""By the file's name: who reads it, and what a good one holds."""


def utf16(data):
    return data.decode().encode("utf-16")


SAME = {
    "a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "no last line end": lambda data: data.removesuffix(b"\n"),
    "blank lines at the end": lambda data: data + b"\n\n",
}
"""What changes nothing."""

WRONG = {
    "nothing at all": lambda data: b"",
    "blank": lambda data: b"\n \n",
    "UTF-16": utf16,
    "Latin-1": lambda data: data + b"\xfc",
    "half a character": lambda data: data + b"\xc3",
    "NUL bytes": lambda data: data.replace(b"1", b"\0").replace(b"N", b"\0") + b"\0",
    "noise": lambda data: bytes(range(256)),
    "a line of a million signs": lambda data: data + b"9" * 1_000_000 + b"\n",
    "a page of HTML": lambda data: b"<!DOCTYPE html>\n<title>404</title>\n",
}
"""What can be nothing that is meant."""


def packed(name, data):
    return gzip.compress(data, mtime=0) if name.endswith(".gz") else data


def is_told(read, path):
    """Check that a file is refused by a clear sentence which begins with its name, or its flag."""
    with pytest.raises(ss.InputError) as refused:
        read(path)
    said = str(refused.value)
    fault = clear(said, path.name) if read is not read_student else clear(said)
    assert not fault, said
    return said


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("change", SAME)
def test_a_file_may_be_written_so(name, change, tmp_path):
    read, good = READERS[name]
    path = tmp_path / name
    path.write_bytes(packed(name, good))
    before = read(path)
    path.write_bytes(packed(name, SAME[change](good)))
    after = read(path)
    assert after.split() == before.split() if isinstance(after, str) else after == before


@pytest.mark.usefixtures("no_hang")
@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("change", WRONG)
def test_a_file_of_something_else_is_told(name, change, tmp_path):
    read, good = READERS[name]
    path = tmp_path / name
    path.write_bytes(packed(name, WRONG[change](good)))
    is_told(read, path)


CHANGED = {
    # name of the file, what is changed into what, what the sentence says
    ("w.csv", b"prompt_len,", b"", "the header must name"),
    ("w.csv", b"output_len\n", b"output_len,x\n", "unknown column 'x'"),
    ("w.csv", b"output_len\n", b"output_len,prompt_len\n", "'prompt_len' is there twice"),
    ("w.csv", b"10,3", b"10", "line 2: 2 cells"),
    ("w.csv", b"10,3", b"10,3,4", "line 2: 4 cells"),
    ("w.csv", b"10,3", b'"10,3', "line 2: "),
    ("w.csv", b"10,3", b"0,3", "line 2: prompt_len must be"),
    ("w.csv", b"10,3", b"10,100000001", "line 2: output_len must be"),
    ("w.csv", b"2,30", b"0,30", "line 4: it arrives before"),
    ("w.csv", b"0.5", b"inf", "line 2: arrival 'inf'"),
    ("w.csv", b"0.5", b"-1", "line 2: arrival '-1'"),
    ("w.csv", b"0.5", b"1e400", "line 2: arrival '1e400'"),
    ("azure.csv", b"2023-11-16 18:15:50", b"2022-11-16 18:15:50", "line 3: it arrives before"),
    ("azure.csv", b"2023-11-16", b"16.11.2023", "line 2: timestamp"),
    ("azure.csv", b"ContextTokens", b"contexttokens", "the header must name"),
    ("m.jsonl", b'"timestamp": 0, ', b"", "line 1: 'timestamp' is missing"),
    ("m.jsonl", b'"timestamp": 27', b'"timestamp": -27', "line 2: arrival"),
    ("m.jsonl", b'"input_length": 7', b'"input_length": "7"', "line 2: prompt_len must be"),
    ("m.jsonl", b'"input_length": 7', b'"input_length": 7.0', "line 2: prompt_len must be"),
    ("m.jsonl", b"}\n", b"\n", "line 1: "),
    ("m.jsonl", b"\n", b"", "line 1: "),
    ("t.json", b'"vllm_version"', b'"version"', "'vllm_version' is missing"),
    ("t.json", b"0.33.0", b"0.34.0", "vllm_version is '0.34.0'"),
    ("t.json", b"[[0, 0, 20, 3, 0]]", b"[]", "empty"),
    ("t.json", b"[[0, 0, 20, 3, 0]]", b"[[0, 0, 20, 3]]", "a request is"),
    ("t.json", b"[[0, 0, 20, 3, 0]]", b"[[0, 0, 20, 3, 0], [0, 1, 20, 3, 0]]", "appears twice"),
    ("t.json", b"[[0, 0, 20, 3, 0]]", b"[[0, 0, 0, 3, 0]]", "prompt_len must be"),
    ("t.json", b'"block_size": 16', b'"block_size": 0', "block_size must be"),
    ("t.json", b'"block_size": 16', b'"block_size": "16"', "block_size"),
    ("t.json", b'"policy": "fcfs"', b'"policy": "lifo"', "policy must be"),
    ("t.json", b'"max_steps": 99', b'"max_steps": -1', "max_steps must be"),
    ("t.json", b'"cost_base_us": 1', b'"cost_base_us": -1', "cost_base_us must be"),
    ("t.json", b'"cost_base_us": 1', b'"cost_base_us": 1' + b"0" * 400, "cost_base_us must be"),
    ("t.json", b"arrival_us", b"arrival", "arrivals are"),
    ("roster.csv", b"student", b"name", "needs a header"),
    ("roster.csv", b"bob,b2", b",b2", "line 3: the student is missing"),
    ("roster.csv", b"ann,a1", b"Lovelace, Ann,a1", "line 2: has more cells"),
    ("roster.csv", b"ann,a1", b'"ann,a1', "unexpected end of data"),
    ("roster.csv", b"student,file", b"student,student", "'student' is there twice"),
    ("roster.csv", b"bob,b2", b"\nbob,b2,b3", "line 4: has more cells"),
    ("roster.csv", b"b2", b"a1", "line 3: 'a1' is listed twice"),
    ("roster.csv", b"ann,a1\nbob,b2\n", b"", "needs a header"),
    ("policy.py", b"Mine", b"Other", "has no class 'Mine'; it has Other"),
    ("policy.py", b"(Naive)", b"(", "line 4: "),
    ("student.py", b"import Plan", b"import simulate", "may use only"),
    ("student.py", b"class Policy", b"class Other", "there is no class Policy"),
}


@pytest.mark.parametrize(("name", "old", "new", "says"), sorted(CHANGED), ids=repr)
def test_a_file_with_one_mistake_is_told(name, old, new, says, tmp_path):
    read, good = READERS[name]
    assert old in good
    path = tmp_path / name
    path.write_bytes(good.replace(old, new, 1))
    assert says in is_told(read, path)


@pytest.mark.parametrize("name", [name for name in READERS if name.endswith(".gz")])
def test_a_packed_file_cut_anywhere_is_told(name, tmp_path):
    read, good = READERS[name]
    path, whole_file = tmp_path / name, packed(name, good)
    for length in range(len(whole_file)):
        path.write_bytes(whole_file[:length])
        is_told(read, path)


@pytest.mark.parametrize("name", READERS)
def test_no_file_a_folder_and_a_locked_file_are_told(name, tmp_path):
    read, good = READERS[name]
    path = tmp_path / name
    is_told(read, path)
    path.mkdir()
    is_told(read, path)
    path.rmdir()
    path.write_bytes(packed(name, good))
    path.chmod(0)
    if os.access(path, os.R_OK):  # as root
        if not hasattr(os, "seteuid"):
            pytest.skip("no file can be locked here")
        os.seteuid(65534)
        try:
            is_told(read, path)
        finally:
            os.seteuid(0)
    else:
        is_told(read, path)


@pytest.mark.parametrize("name", [name for name in READERS if name != "student.py"])
def test_a_file_without_an_end_is_told(name, tmp_path, monkeypatch):
    """Such as a link to /dev/zero, or a few packed bytes that are gigabytes when unpacked."""
    for most in ("MOST_LINE", "MOST_BYTES"):
        monkeypatch.setattr(reading, most, 5000)
    path = tmp_path / name
    path.write_bytes(packed(name, b"1" * 5001))
    assert "has more than 5,000" in is_told(READERS[name][0], path)
    path.write_bytes(packed(name, b"1" * 5000))
    assert "has more than" not in is_told(READERS[name][0], path)


NOBODY = pytest.mark.usefixtures("no_hang")


@NOBODY
@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
@settings(max_examples=25)
def test_any_bytes_are_read_or_told(name, data, tmp_path_factory):
    """Bytes at random, and good files with some of them changed, cut out or put in."""
    read, good = READERS[name]
    content = bytearray(data.draw(st.sampled_from([good, packed(name, good), b""])))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(content)))
        until = data.draw(st.integers(at, min(len(content), at + 8)))
        content[at:until] = data.draw(st.binary(max_size=6) | st.sampled_from(BITS))
    if data.draw(st.booleans()):
        content = bytearray(packed(name, bytes(content)))
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    fault = ""
    try:
        read(path)
    except ss.InputError as error:
        fault = clear(str(error)) and str(error)
    except ss.PolicyError:
        fault = "" if name == "policy.py" else "PolicyError"  # it is run, and may do as it likes
    assert not fault


BITS = (b"\n", b",", b'"', b"{", b"[", b"}", b"]", b"0", b"-", b"1e9", b"null", b"true", b"9" * 25)


# --- what is written, and what is printed

WRITES: dict[str, tuple[str, tuple[str, ...]]] = {
    # what is written, and the command that does it
    "servesim run --trace-out": ("out.json", ("run", "--policy", "naive", *TINY, "--trace-out")),
    "servesim sweep --out": ("out.csv", ("sweep", "--policy", "naive", *TINY, "--out")),
    "grade check --html": (
        "out.html",
        ("check", "work/policy.py", "--assignment", "warmup", "--html"),
    ),
    "grade grade --out": (
        "out.csv",
        ("grade", "work", "--assignment", "warmup", "--unsafe", "--out"),
    ),
    "grade results --out": (
        "out.json",
        ("results", "work", "--assignment", "warmup", "--unsafe", "--out"),
    ),
    "grade gradescope": ("out.zip", ("gradescope", "--assignment", "warmup")),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in a folder with one submission, and start no processes.

    The folder above it belongs to the test as well: `..` is one of the names that are tried.
    """
    place = tmp_path / "here"
    (place / "work").mkdir(parents=True)
    (place / "work" / "policy.py").write_text("\n", encoding="utf-8")
    monkeypatch.chdir(place)
    monkeypatch.setattr(sweep, "Processes", InThisProcess)
    monkeypatch.setattr(folder, "Processes", InThisProcess)
    return place


def test_whoever_adds_a_flag_that_names_an_output_adds_its_row():
    outputs = {
        f"{program} {command} {flag}"
        for program in PARSERS
        for command, parser in commands(program).items()
        for flag in parser._option_string_actions
        if flag.endswith("out") or flag == "--html"
    }
    assert outputs == WRITES.keys() - {"grade gradescope"}


@pytest.mark.parametrize("what", WRITES)
@pytest.mark.parametrize("trouble", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_file_is_there_as_a_whole_or_as_it_was(what, trouble, here, monkeypatch, capsys):
    name, argv = WRITES[what]
    main = MAINS[what.split()[0]]
    assert main([*argv, name]) in (0, 1)
    (here / name).write_text("an older one", encoding="utf-8")
    write = Path.write_bytes

    def fails(self, data):
        if self.name != f"{name}.part":
            return write(self, data)
        write(self, data[: len(data) // 2])
        raise trouble

    monkeypatch.setattr(Path, "write_bytes", fails)
    capsys.readouterr()
    status = main([*argv, name])
    _, err = capsys.readouterr()
    assert status == (130 if isinstance(trouble, KeyboardInterrupt) else 2)
    assert len(err.splitlines()) == 1
    assert (here / name).read_text(encoding="utf-8") == "an older one"
    assert not list(here.glob("*.part"))


@pytest.mark.parametrize("what", WRITES)
def test_a_folder_in_the_way_is_told(what, here, capsys):
    name, argv = WRITES[what]
    (here / f"{name}.part").mkdir()
    assert MAINS[what.split()[0]]([*argv, name]) == 2
    _, err = capsys.readouterr()
    assert not clear(err.rstrip("\n"), name)
    assert not (here / name).exists()


@pytest.mark.parametrize(
    ("program", "argv", "kept"),
    [
        ("servesim", "run --policy naive --workload w.csv --trace-out w.csv", "w.csv"),
        ("servesim", "run --policy own.py:Own --workload toy:n=2 --trace-out own.py", "own.py"),
        ("servesim", "sweep --policy naive --workload w.csv --out ./w.csv", "w.csv"),
        ("grade", "check work/policy.py --assignment warmup --html work/policy.py", None),
        ("grade", "grade work --assignment warmup --unsafe --out work/policy.py", None),
        ("grade", "grade work --assignment warmup --unsafe --roster r.csv --out r.csv", "r.csv"),
        ("grade", "results work --assignment warmup --unsafe --out work/policy.py", None),
    ],
)
def test_nothing_is_written_over_what_is_read(program, argv, kept, here, capsys):
    texts = {
        "w.csv": "arrival_s,prompt_len,output_len\n0,1,1\n",
        "r.csv": "student,key\nAda,policy\n",
        "own.py": "from servesim.policies import Naive\n\nclass Own(Naive):\n    pass\n",
    }
    for name, text in texts.items():
        (here / name).write_text(text, encoding="utf-8")
    file = here / (kept or "work/policy.py")
    before = file.read_bytes()
    assert MAINS[program](argv.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"servesim(\.grade)?: .* would be written over what is read; .*\n", err)
    assert file.read_bytes() == before


def test_a_name_that_is_no_utf_8_can_be_written_down(tmp_path):
    output.write_whole(tmp_path / "out.html", "ü\udcff")
    assert (tmp_path / "out.html").read_bytes() == b"\xc3\xbc\\udcff"


@pytest.mark.parametrize("what", ["servesim sweep --out", "grade grade --out"])
def test_where_the_notes_cannot_grow_it_is_told(what, here, monkeypatch, capsys):
    """The points and marks that are finished are kept as they come: the disk may fill up there."""
    name, argv = WRITES[what]

    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

        def close(self):
            if not self.closed:  # what is in the buffer is tried once more
                super().close()
                self.write("")

    opened = Path.open

    def grows(self, mode="r", *args, **options):
        return Full() if mode == "a" else opened(self, mode, *args, **options)

    monkeypatch.setattr(Path, "open", grows)
    assert MAINS[what.split()[0]]([*argv, name]) == 2
    _, err = capsys.readouterr()
    assert "No space left on device" in err
    assert len(err.splitlines()) == 1


PRINTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("servesim", "toy"): ("-n", "1"),
    ("servesim", "slots"): ("--requests", "1"),
    ("servesim", "run"): ("--policy", "naive", *TINY),
    ("servesim", "compare"): ("--policy", "naive", *TINY),
    ("servesim", "sweep"): ("--policy", "naive", *TINY),
    ("servesim", "replay"): ("t.json",),
    ("grade", "check"): ("work/policy.py", "--assignment", "warmup"),
    ("grade", "release"): ("new",),
    ("grade", "grade"): ("work", "--assignment", "warmup", "--unsafe", "--out", "g.csv"),
    ("grade", "gradescope"): ("a.zip", "--assignment", "warmup"),
}


@pytest.mark.skipif(os.name != "posix", reason="this needs POSIX pipes")
@pytest.mark.parametrize(("program", "command"), PRINTS)
@pytest.mark.parametrize("end", ["a closed pipe", "a full disk"])
def test_output_that_goes_nowhere(program, command, end, here, monkeypatch, capsys):
    (here / "t.json").write_bytes(ONE_TRACE)
    if end == "a closed pipe":
        read, write = os.pipe()
        os.close(read)
        stdout = os.fdopen(write, "w")
    elif Path("/dev/full").exists():
        stdout = Path("/dev/full").open("w")  # noqa: SIM115
    else:
        pytest.skip("this needs /dev/full")
    with stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        status = MAINS[program]([command, *PRINTS[program, command]])
        monkeypatch.undo()
    _, err = capsys.readouterr()
    if end == "a closed pipe":  # the reader has seen enough
        assert status in (0, 1)
        assert err == ""
    else:
        assert status == 2
        assert re.fullmatch(r"servesim(\.grade)?: the output cannot be written: .*\n", err)


@pytest.mark.parametrize(("program", "command"), PRINTS)
@pytest.mark.parametrize("closed", ["stdin", "stdout", "stderr"])
def test_a_closed_stream_is_no_error(program, command, closed, here, monkeypatch, capsys):
    """As ``>&-`` leaves it. Of ``2>&-`` the sentence must not turn up among the results."""
    (here / "t.json").write_bytes(ONE_TRACE)
    for argv, statuses in (([command, *PRINTS[program, command]], (0, 1)), (["nosuch"], (2,))):
        monkeypatch.setattr(sys, closed, None)
        assert MAINS[program](argv) in statuses
        with getattr(sys, closed):
            monkeypatch.undo()
        out, err = capsys.readouterr()
        assert bool(err) == (closed != "stderr" and 2 in statuses)
        assert bool(out) == (closed != "stdout" and 2 not in statuses)
        monkeypatch.chdir(here)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this needs /dev/full")
@pytest.mark.parametrize("program", PARSERS)
def test_a_sentence_that_cannot_be_printed_leaves_the_status(program, monkeypatch):
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        assert MAINS[program](["nosuch"]) == 2
        monkeypatch.undo()


@pytest.mark.parametrize("program", PARSERS)
def test_a_folder_that_is_gone_is_told(program, tmp_path, monkeypatch, capsys):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert MAINS[program](["--version"]) == 2
    assert not clear(capsys.readouterr().err.rstrip("\n"), "current folder")


@pytest.mark.parametrize("program", PARSERS)
def test_too_little_memory_is_told(program, monkeypatch, capsys):
    def full(text):
        raise MemoryError

    monkeypatch.setattr(cli.spec, "requests", full)
    monkeypatch.setattr(grade_cli, "find", full)
    command = "run" if program == "servesim" else "check"
    assert MAINS[program]([command, *PRINTS[program, command]]) == 2
    assert not clear(capsys.readouterr().err.rstrip("\n"), "memory")


def test_every_command_that_prints_is_in_that_table():
    all_of_them = {(program, name) for program in PARSERS for name in commands(program)}
    assert all_of_them - PRINTS.keys() == {("grade", "results")}  # which prints nothing


# --- extremes

VAST = 10**7
AT_EASE = {  # options that turn nobody away, and cut a prompt of that length into few pieces
    "orca": {"max_len": 2 * VAST},
    "shedding": {"patience_s": 10**9},
    "step_target": {"target_ms": 10**9},
}


@pytest.mark.usefixtures("no_hang")
@pytest.mark.parametrize("policy", BUILT_IN)
@pytest.mark.parametrize(
    "requests",
    [
        [ss.Request(0, 0, VAST, 1)],
        [ss.Request(0, 0, 1, VAST)],
        [ss.Request(0, 0, 1, 1), ss.Request(1, 0, VAST, 2), ss.Request(2, 10**18, 1, 1)],
        [ss.Request(2**63 - 1, 0, 1, 1), ss.Request(-(2**63), 0, 1, 1, priority=2**63 - 1)],
    ],
    ids=["a vast prompt", "a vast output", "one vast among small", "the ends of 64 bits"],
)
def test_vast_numbers_come_out_right(policy, requests):
    result = ss.simulate(requests, BUILT_IN[policy](**AT_EASE.get(policy, {})))
    assert result.count("finished") == len(requests)
    assert result.output_tokens == sum(r.output_len for r in requests)
    assert all(f is None or math.isfinite(f) for f in result.ttft_ms.row().values())


@pytest.mark.usefixtures("no_hang")
@pytest.mark.parametrize("rate", [1e15, 1e-7])
def test_arrivals_all_at_once_and_years_apart(rate):
    requests = ss.workload.poisson(20, rate=rate)
    assert [r.arrival_ns for r in requests] == sorted(r.arrival_ns for r in requests)
    result = ss.simulate(requests, ss.policies.VLLM())
    assert result.count("finished") == 20


@pytest.mark.long
@pytest.mark.parametrize("policy", BUILT_IN)
def test_a_million_requests_at_one_instant(policy):
    n = 10**6 if policy not in SLOW_QUEUES else 10**4
    requests = (ss.Request(i, 0, 8, 2) for i in range(n))
    result = ss.simulate(requests, BUILT_IN[policy](**AT_EASE.get(policy, {})))
    assert result.count("finished") == n


SLOW_QUEUES = ("priority", "shortest_first", "fair", "shedding")
"""These look at the whole queue in every step."""


# --- plans at random

ODD = st.sampled_from([None, "0", "", 0, -1, 1.5, True, 2**70, [None], [1], object()])
IDS = st.integers(0, 3) | st.integers(-1, 4) | ODD
SOME_IDS = st.lists(st.integers(0, 3), max_size=2) | st.lists(IDS, max_size=2)
FIELDS = {
    "scheduled": st.lists(st.tuples(IDS, st.integers(-1, 30) | ODD) | ODD, max_size=4),
    "decode_all": st.booleans(),
    "preempted": SOME_IDS,
    "rejected": SOME_IDS,
    "wait": st.booleans(),
    "repeatable": st.booleans(),
    "until_arrival": st.booleans(),
    "queue": st.permutations(range(4)) | st.lists(IDS, max_size=4),
    "padded_prompt": st.integers(-1, 40),
    "idle_slots": st.integers(-1, 3),
    "reasons": st.dictionaries(st.integers(0, 3), st.text(max_size=3) | ODD, max_size=2),
}
WILD = st.sampled_from(sorted(FIELDS)).flatmap(
    lambda name: st.tuples(st.just(name), FIELDS[name] | FIELDS[name] | ODD)
)
CHANGES = st.lists(WILD, max_size=2).map(dict)
"""Fields of a plan, with what stands there instead of what is right."""


class Says:
    """vLLM's plans, changed in the first few steps."""

    def __init__(self, changes):
        self.changes, self.right = changes, ss.policies.VLLM(16)

    def plan(self, view):
        change = self.changes.pop(0) if self.changes else {}
        return dataclasses.replace(self.right.plan(view), **change)


@pytest.mark.usefixtures("no_hang")
@given(changes=st.lists(CHANGES, min_size=1, max_size=6), blocks=st.sampled_from([None, 9]))
@settings(max_examples=150)
def test_any_plan_is_carried_out_or_told_with_its_rule(changes, blocks):
    requests = [ss.Request(i, 0, 20, 3) for i in range(3)] + [ss.Request(3, 10**9, 5, 2)]
    try:
        result = ss.simulate(requests, Says(changes), kv=ss.KVCache(blocks), record_steps=True)
    except ss.PlanError as error:
        event(f"broke {error.rule}")
        told = [error.rule in audit.RULES, "\n" not in str(error), len(str(error)) < 600]
        assert all(told), str(error)  # noqa: PT017
        return
    event("carried out")
    assert result.count("finished") + result.count("rejected") == 4
    if blocks:
        held = [sum(step.blocks.values()) + step.free_blocks[1] for step in result.step_records]
        assert set(held) <= {blocks}


# --- notes of work that was broken off


def swept(here):
    out = here / "rows.csv"
    work = ("naive", "poisson:n=1,prompt=2,output=1")
    return sweep.sweep(*work, executor=InThisProcess(), out=out), out.with_name(
        "rows.csv.points.jsonl"
    )


def graded(here):
    out = here / "grades.csv"
    student = roster.Entry("ann", roster.Submission("policy", here / "work" / "policy.py", 0.0))
    rows = folder.grade([student], folder.Task("warmup", unsafe=True), out)
    return rows, out.with_name("grades.csv.done.jsonl")


@pytest.mark.usefixtures("no_hang")
@pytest.mark.parametrize("work", [swept, graded])
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_notes_that_were_tampered_with_are_used_or_told(work, here, data):
    for old in (*here.glob("rows.csv*"), *here.glob("grades.csv*")):
        old.unlink()
    right, notes = work(here)
    note = json.loads(notes.read_text(encoding="utf-8"))
    parts = [note, *(part for part in note.values() if isinstance(part, dict))]
    part = data.draw(st.sampled_from(parts))
    value = st.sampled_from([None, "x", -1, 10**400, [], {}, True, {"a": 1}])
    match data.draw(st.sampled_from(["change", "drop", "add", "cut", "another", "noise"])):
        case "change":
            part[data.draw(st.sampled_from(sorted(part)))] = data.draw(value)
        case "drop":
            del part[data.draw(st.sampled_from(sorted(part)))]
        case "add":
            part["nosuch"] = data.draw(value)
        case "another":
            note = data.draw(value)
    line = json.dumps(note).encode() + b"\n"
    if data.draw(st.booleans()):
        line = line[: data.draw(st.integers(0, len(line)))] + data.draw(st.binary(max_size=5))
    notes.write_bytes(line)
    try:
        rows, _ = work(here)
    except ss.InputError as error:
        said = str(error)
        assert not clear(said, notes.name), said
        assert notes.read_bytes() in (line, line[: line.rfind(b"\n") + 1])  # a cut line goes
        return
    assert list(rows[0]) == list(right[0])


@pytest.mark.parametrize("text", ["7", "7\r\n", "\ufeff7", " -7\n"])
def test_a_seed_may_be_written_so(text, tmp_path):
    (tmp_path / "seed.txt").write_bytes(text.encode())
    assert hidden.seed_in(tmp_path) == (-7 if "-" in text else 7)


@pytest.mark.parametrize("text", ["", "x", "7 8", "1.5", "nan", "9" * 30, "9" * 5000, "\0", "\xff"])
def test_what_is_no_seed_is_told(text, tmp_path):
    (tmp_path / "seed.txt").write_bytes(text.encode("latin-1"))
    is_told(lambda path: hidden.seed_in(path.parent), tmp_path / "seed.txt")
