"""The stepper: what it tells of each step is what the policy saw, decided and said."""

from __future__ import annotations

import json
import re
import types
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import servesim as ss
from servesim import replay
from servesim.errors import InputError
from servesim.explore import Explorer, Steps, explore
from servesim.figs.stepper import draw
from servesim.page import answer
from servesim.policies import BUILT_IN
from servesim.stepper import stepper
from servesim.story import Story
from servesim.svg.canvas import text_width
from servesim.svg.look import TEXT
from tests.vllm_traces import HERE

THREE = [
    ss.Request(0, 0, 600, 8),
    ss.Request(1, 20_000_000, 300, 6),
    ss.Request(2, 150_000_000, 1500, 3),
]
TWO = [ss.Request(i, 0, 8, 6) for i in range(2)]
SIX = ss.KVCache(blocks=6, block_size=4)


class Watched:
    """Asks another policy, and writes down what it saw and what it answered."""

    def __init__(self, policy: Any, seen: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        self.policy, self.seen = policy, seen
        self.knows_output_length, self.reserve_all = policy.knows_output_length, policy.reserve_all

    def __deepcopy__(self, memo: object) -> Watched:
        return self  # the engine's copy writes into the same list

    def plan(self, view: ss.View) -> ss.Plan:
        before = view.to_json()
        plan: ss.Plan = self.policy.plan(view)
        if plan.scheduled or plan.preempted or (plan.decode_all and view.running.decodes):
            self.seen.append((before, plan.to_json()))
        return plan


class Silent:
    """Serves one request at a time and never says why."""

    def plan(self, view: ss.View) -> ss.Plan:
        return ss.Plan([(r.id, r.missing) for r in (view.running or view.waiting[:1])])


def told(run: Any, policies: Any = (), /, step: int = 0, **options: Any) -> str:
    """Return the sentence of a step."""
    return stepper(run, policies, step=step, **options).figure().summary


def tight(policy: str) -> Any:
    limits = {"chunked": {"token_budget": 24}, "shedding": {"patience_s": 0.1}}
    options: dict[str, Any] = limits.get(policy, {})
    if issubclass(BUILT_IN[policy], ss.policies.VLLM):
        options = {"max_num_batched_tokens": 24, **options}
    return BUILT_IN[policy](**options)


# -------------------------------------------------------------------------- the story


@pytest.mark.parametrize("name", BUILT_IN)
@given(seed=st.integers(0, 10_000), blocks=st.integers(13, 40), count=st.integers(1, 8))
@settings(max_examples=8, deadline=None)
def test_a_step_shows_what_the_policy_saw_and_did(
    name: str, seed: int, blocks: int, count: int
) -> None:
    requests = ss.workload.poisson(count, 60.0, (1, 40), (1, 12), seed)
    seen: list[tuple[dict[str, Any], dict[str, Any]]] = []
    result = ss.simulate(
        requests, Watched(tight(name), seen), kv=ss.KVCache(blocks, 4), record_steps=True
    )
    story = Story(result)
    assert len(story.steps) == len(seen)
    for i, (view, plan) in enumerate(seen):
        now = story.moment(i)
        assert now.step.start_ns == view["clock_ns"]
        before = {r["id"]: r for r in [*view["waiting"], *view["running"]]}
        gone = plan["preempted"]
        scheduled = {s.id: s.tokens for s in now.step.scheduled}
        everyone = [*now.queue, *now.batch, *now.away]
        assert sorted(p.id for p in everyone) == sorted(before)
        assert [p.id for p in now.away] == plan["rejected"]
        for part in everyone:
            r = before[part.id]
            assert part.computed == (0 if part.id in gone else r["computed"])
            assert part.produced == r["produced"]
            assert part.known == r["prompt_len"] + r["produced"]
            assert part.tokens == scheduled.get(part.id, 0)
            assert part.sampled == (part.tokens == part.known - r["computed"] and part.tokens > 0)
            why = plan["reasons"].get(str(part.id))
            assert why is None or part.tokens or part.sentence.endswith(why)
            joined = part.place == "batch" and r in view["waiting"]
            assert joined == part.told.startswith("joins")
            assert (part.id in gone) == part.told.startswith("is thrown out")
            assert (part in now.away) == part.told.startswith("is turned away")
            assert part.told.endswith("done") == (part.id in now.step.finished)
            assert f"r{part.id}" in now.sentence()


def test_nobody_is_given_a_reason_that_the_policy_did_not_give() -> None:
    story = Story(ss.simulate(THREE, Silent(), record_steps=True))
    words = {p.told for i in range(len(story.steps)) for p in story.moment(i).queue}
    assert words == {"", "has arrived and waits"}


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_policies_say_why_somebody_waits(name: str) -> None:
    policy = ss.policies.VLLM(24, 3) if name == "vllm" else tight(name)
    requests = ss.workload.poisson(8, 60.0, (8, 40), (4, 12), 3)
    result = ss.simulate(requests, policy, kv=ss.KVCache(30, 4), record_steps=True)
    waited = [step for step in result.step_records if step.waiting]
    assert waited
    for step in waited:
        assert {*step.waiting} & {*step.reasons}, step
        named = {rid: why for rid, why in step.reasons.items() if rid not in step.rejected}
        assert all(why.startswith(f"r{rid} ") for rid, why in named.items())


def test_who_arrives_in_a_step_waits_for_its_end() -> None:
    ends = " Meanwhile r{} arrives and has to wait for its end."
    said = [told(THREE, "continuous", step=i) for i in range(4)]
    assert [text.endswith(ends.format(r)) for text, r in zip(said, "1-2-", strict=True)] == [
        True, False, True, False,
    ]  # fmt: skip
    # Not whoever comes just when a step ends, nor after a pause.
    end = ss.simulate(THREE[:1], ss.policies.Naive(), record_steps=True).step_records[0].end_ns
    on_time = [THREE[0], ss.Request(1, end, 8, 1), ss.Request(2, 10**10, 8, 1)]
    story = Story(ss.simulate(on_time, ss.policies.Naive(), record_steps=True))
    assert not any(story.moment(i).during for i in range(len(story.steps)))


def test_tokens_of_who_was_thrown_out_do_not_touch_the_reason() -> None:
    x, texts = {}, stepper(TWO, "vllm", kv=SIX, step=5).figure().to_html()
    for at, text in re.findall(r'<text[^>]*\bx="([\d.]+)"[^>]*>([^<]+)</text>', texts):
        x[text] = float(at)
    (why,) = (at for text, at in x.items() if text.startswith("is thrown out"))
    assert why >= x["13 tokens"] + text_width("13 tokens", TEXT) + 8


def test_the_example_of_a_request_that_lacks_blocks() -> None:
    assert "r1 waits: needs 4 blocks, 2 free." in told(TWO, "continuous", kv=SIX)
    assert told(TWO, "vllm", kv=SIX, step=5).endswith(
        "r0 decodes, done. r1 is thrown out: those who decode need 2 blocks more, 0 free."
    )
    assert "r1 joins, recomputes all 13 tokens, done." in told(TWO, "vllm", kv=SIX, step=6)


def test_a_pause_is_told_with_its_reason() -> None:
    first = told(THREE, "static:batch_size=3")
    assert "Before it nothing ran for 150.0 ms: r0 waits: 2 of 3 have arrived." in first
    assert "nothing ran" not in told(THREE, "static:batch_size=3", step=1)


@pytest.mark.parametrize(
    ("budget", "step", "words"),
    [
        (512, 0, "r0 joins, prefills 512 of 600 tokens."),
        (512, 1, "r0 prefills the last 88 tokens. r1 joins, prefills all 300 tokens."),
        (200, 1, "r0 prefills 200 of 400 tokens left. r1 waits"),
        (599, 1, "r0 prefills the last token. r1 joins"),
        (300, 1, "r0 prefills the last 300 tokens. r1 waits: the step's 300 tokens are used."),
    ],
)
def test_chunks_are_told(budget: int, step: int, words: str) -> None:
    assert words in told(THREE, ss.policies.Chunked(budget), step=step)


def test_a_long_list_of_names_is_cut() -> None:
    many = [ss.Request(i, 0, 5, 3) for i in range(40)]
    sentence = told(many, ss.policies.Continuous(30), step=1)
    assert "r9 and 20 more decode." in sentence
    assert "r30 waits: all 30 places are taken. r31, r32" in sentence


# ------------------------------------------------------------------------- the picture


@pytest.mark.parametrize("name", BUILT_IN)
def test_stepping_moves_nothing_and_the_same_step_is_the_same_picture(name: str) -> None:
    result = ss.simulate(THREE, BUILT_IN[name](), kv=ss.KVCache(160, 16), record_steps=True)
    story = Story(result)
    pictures = [draw(story, i).svg for i in range(len(story.steps))]
    heights = {ET.fromstring(p).get("height") for p in pictures}
    # Only a group that is padded says more: how many idle places are computed.
    assert len(heights) == 1 + (name == "static")
    assert pictures == [draw(Story(result), i).svg for i in range(len(story.steps))]
    assert len(set(pictures)) == len(pictures)


def texts(figure: Any) -> str:
    return " | ".join(e.text or "" for e in ET.fromstring(figure.svg).iter() if e.text)


def test_the_picture_shows_clock_queue_batch_budget_and_blocks() -> None:
    figure = stepper(TWO, "vllm:max_num_batched_tokens=64", kv=SIX, step=5).figure()
    shown = texts(figure)
    for words in (
        "Step 5 of 6",
        "Waiting: 1",
        "13 tokens",
        "is thrown out: those who decode",
        "In the batch: 1",
        "r0: 12 of 13 known tokens are in the cache, this step computes 1",
        "r0: 6 tokens of output so far",
        "Tokens in this step: 1",
        "budget 64",
        "KV blocks: 2 of 6 free",
        "block 0: r0, 4 of 4 tokens",
        "block 5: free",
    ):
        assert words in shown
    assert figure.limits == {"step": 6}
    assert figure.table is not None
    assert [row[0] for row in figure.table.rows] == [str(i) for i in range(7)]


def test_what_depends_on_the_run_is_told() -> None:
    free = texts(stepper(THREE, "continuous").figure())
    assert "no token budget" in free
    assert "no limit in this run" in free
    padded = texts(stepper(THREE, "static:batch_size=3", step=3).figure())
    assert "1 idle place computed as well" in padded


def test_a_step_beyond_the_last_is_the_last() -> None:
    story = Story(ss.simulate(THREE, Silent(), record_steps=True))
    assert draw(story, 10_000) == draw(story, len(story.steps) - 1)


def test_a_large_run_is_summed_up() -> None:
    """Thousands of steps and blocks, hundreds of requests: a picture of the usual size."""
    requests = ss.workload.poisson(300, 30.0, (50, 200), (20, 60), 1)
    result = ss.simulate(requests, ss.policies.VLLM(), kv=ss.KVCache(3000), record_steps=True)
    figure = draw(Story(result), 200)
    assert len(figure.svg) < 100_000
    assert "more" in texts(figure)
    assert figure.table is not None
    assert len(figure.table.rows) == 60
    assert "200" in [row[0] for row in figure.table.rows]


def test_text_from_a_policy_is_text() -> None:
    class Odd(Silent):
        def plan(self, view: ss.View) -> ss.Plan:
            plan = super().plan(view)
            plan.reasons = {r.id: "<b>no & \n  never</b>" for r in view.waiting[1:]}
            return plan

    figure = stepper(TWO, Odd()).figure()
    assert "r1 waits: <b>no & never</b>." in figure.summary
    ET.fromstring(figure.svg)
    assert "<b>" not in figure.to_html()


# --------------------------------------------------------------- everywhere: page, kernel


def on_the_page(explorer: Explorer, **values: str) -> dict[str, Any]:
    """Answer as the page's script asks."""
    root = ET.fromstring(explorer.to_html())
    held = {e.get("name", ""): e.get("value", "") for e in root.iter("input")}
    chosen = {n: str(v) for n, v in explorer.values().items()} | held | values
    request = {"target": root.get("data-live"), "id": root.get("id")}
    request |= {"params": root.get("data-params"), "values": chosen}  # type: ignore[dict-item]
    reply: dict[str, Any] = json.loads(answer(json.dumps(request)))
    return reply


def test_the_page_runs_built_in_policies_again() -> None:
    """Every option, price list, cache and rule of the run gets there."""
    ways = {
        "a <slow> one": {"policy": "chunked:chunk=100,max_running=2", "cost": ss.cost.Roofline()},
        "pieces": {"policy": ss.policies.Orca("pow2"), "kv": ss.KVCache(256, 16, contiguous=True)},
        "vllm": ss.policies.VLLM(300, release="0.11.2", watermark=0.1),
    }
    e = stepper(THREE, ways, max_steps=12, cost=ss.cost.TOY, kv=ss.KVCache(200), id="one")
    assert e.target == "servesim.figs:stepper"
    for label, way in ways.items():
        own: dict[str, Any] = way if isinstance(way, dict) else {"policy": way}
        options = {"max_steps": 12, "cost": ss.cost.TOY, "kv": ss.KVCache(200)} | own
        policy = options.pop("policy")
        made = ss.policies.Chunked(chunk=100, max_running=2) if isinstance(policy, str) else policy
        story = Story(ss.simulate(THREE, made, record_steps=True, **options))
        for step in (0, 3, 11):
            figure = draw(story, step).with_id("one")
            reply = on_the_page(e, run=label, step=str(step))
            assert reply["picture"] == figure.picture_html()
            assert reply["numbers"] == figure.numbers_html()
            assert reply["limits"] == {"step": len(story.steps) - 1}


def test_your_own_policy_moves_in_a_kernel_and_stands_still_on_the_page() -> None:
    e = stepper(THREE, [Silent(), "naive"], step=2)
    root = ET.fromstring(e.to_html())
    assert root.get("data-live") is None
    assert root.find("form") is None
    assert root.find(".//p[@class='live-status']") is not None
    assert root.find(".//details//table") is not None
    assert e.params["run"].default == "Silent"
    first = e.figure().summary
    e.set(run="naive")
    assert e.figure().summary != first
    assert "r1 waits: r0 is served alone" in e.figure().summary


def test_a_result_of_anything_can_be_stepped_through() -> None:
    result = ss.simulate(THREE, Silent(), record_steps=True)
    e = stepper(result, step=3, caption="Look here")
    assert e.figure() == draw(Story(result), 3).with_id("stepper")
    assert e.to_text().startswith("Look here\n\nStep: 3\n")


@pytest.mark.parametrize("name", ["small021", "small001", "small015"])
def test_a_loaded_trace_is_what_it_says(name: str) -> None:
    """Its steps, its lists and its free blocks, as counts; and both releases in one stepper."""
    files = [HERE / f"small.v{v}.jsonl.gz" for v in ("0.33.0-wm5", "0.11.2")]
    traces = {f.name: t for f in files for t in replay.read(f) if t["name"] == name}
    e = stepper(traces)
    assert e.target == "servesim.figs:stepper"
    for label, trace in traces.items():
        last = len(trace["steps"]) - 1
        for i in {0, 1, min(5, last), last // 2, last}:
            recorded = trace["steps"][i]
            figure = e.figure(run=label, step=i)
            assert figure.limits == {"step": last}
            shown = texts(figure)
            assert f"Waiting: {len(recorded['w'])}" in shown
            assert f"In the batch: {len(recorded['r'])}" in shown
            assert f"Tokens in this step: {sum(n for _, n, _ in recorded['s'])}" in shown
            assert f"KV blocks: {recorded['b'][1]} of " in shown
            assert not re.search(r"block \d+:", shown)
            assert on_the_page(e, run=label, step=str(i))["picture"] == figure.picture_html()
    one = next(iter(traces.values()))
    assert stepper(one).figure(step=1).summary == e.figure(step=1).summary


# ------------------------------------------------------------------- the control of steps


def parts(e: Explorer) -> tuple[Any, Any, Any]:
    """Return slider, buttons by name, and picture of the widget view."""
    slider, box, *others = e.widget().children
    kinds = {type(w).__name__: w for w in others}
    return slider, {getattr(b, "tooltip", "") or "play": b for b in box.children}, kinds


def test_buttons_move_the_slider_in_a_kernel() -> None:
    e = stepper(THREE, ["continuous", "naive"], step=3)
    slider, buttons, kinds = parts(e)
    assert (slider.value, slider.max) == (3, 7)
    for name, step in (
        ("Next step", 4),
        ("Last step", 7),
        ("Next step", 7),
        ("One step back", 6),
        ("First step", 0),
        ("One step back", 0),
    ):
        buttons[name].click()
        assert (slider.value, e.values()["step"]) == (step, step)
    assert type(buttons["play"]).__name__ == "Play"
    # A longer run goes on further; back in the shorter one the slider stays within it.
    kinds["Dropdown"].value = "naive"
    assert slider.max == 16
    slider.value = 16
    assert "r2 decodes, done" in e.figure().summary
    kinds["Dropdown"].value = "continuous"
    assert (slider.value, slider.max, e.values()["step"]) == (7, 7, 7)
    e.set(run="naive", step=12)
    assert (slider.value, slider.max) == (12, 16)
    kinds["Button"].click()
    assert (slider.value, slider.max) == (3, 7)


def test_markup_of_the_control() -> None:
    root = ET.fromstring(stepper(THREE, "continuous", step=99).to_html())
    (slider,) = root.iter("input")
    assert slider.attrib | {"id": ""} == {
        "id": "",
        "type": "range",
        "name": "step",
        "min": "0",
        "max": "7",
        "step": "1",
        "value": "7",
        "data-steps": "",
        "aria-describedby": "stepper-in-step-keys",
    }
    buttons = [b for b in root.iter("button") if b.get("data-go")]
    assert [b.get("aria-label") or b.text for b in buttons] == [
        "First step",
        "One step back",
        "Play",
        "Next step",
        "Last step",
    ]
    keys = [e for e in root.iter("p") if e.get("id") == "stepper-in-step-keys"]
    assert "space" in (keys[0].text or "")
    assert len([e for e in root.iter() if e.tag.endswith("}svg")]) == 1


def test_an_argument_can_be_fixed() -> None:
    e = explore("servesim.figs:batching", fixed={"rate": 2.0}, max_batch=(1, 8, 1, 2))
    assert "rate" not in e.values()
    assert e.figure() == explore("servesim.figs:batching", rate=[2.0], max_batch=[2]).figure()
    assert on_the_page(e, max_batch="2")["picture"] == e.figure().picture_html()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: stepper(ss.simulate(THREE, Silent())), "record_steps=True"),
        (lambda: stepper([], "naive"), "the workload is empty"),
        (lambda: stepper(THREE, "naive", max_steps=0), "no recorded step"),
        (lambda: stepper(THREE), "no policy is given"),
        (lambda: stepper(THREE, "nave"), "unknown policy 'nave'"),
        (lambda: stepper(THREE, Silent), "the class Silent is not a policy"),
        (lambda: stepper(THREE, [Silent(), Silent()]), "two policies are called 'Silent'"),
        (
            lambda: stepper(ss.simulate(THREE, Silent(), record_steps=True), "naive"),
            "has been run",
        ),
        (lambda: stepper({}), "see replay.read"),
        (lambda: stepper({"requests": []}), "'config' is missing"),
        (lambda: stepper(THREE, "naive", step=-1), "a whole number from 0 on"),
        (lambda: stepper(THREE, "naive").set(step=1.5), "a whole number from 0 on"),
        (lambda: stepper(THREE, "naive").set(step=True), "a whole number from 0 on"),
        (lambda: draw(Story(ss.simulate(THREE, Silent(), record_steps=True)), -1), "0 or more"),
        (lambda: explore("servesim.figs:stepper", step=Steps()), "needs a value for 'run"),
    ],
)
def test_misuse_is_one_sentence(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "<b>", "nan", "1e400", "-inf"])
def test_a_step_that_is_none_is_a_sentence_on_the_page(text: str) -> None:
    (reply,) = on_the_page(stepper(THREE, "naive"), step=text).items()
    assert reply[0] == "message"


def test_a_shell_without_widgets_still_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    bundle = stepper(THREE, Silent())._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
