"""The live figure of the chapter on vLLM: a replayed trace, and what its knobs would change."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from .. import cost, policies, svg, trace
from ..engine import simulate
from ..errors import InputError
from ..kv import KVCache
from ..lives import lives
from ..metrics import Result
from ..request import NS_PER_MS, NS_PER_US, Request

# The workload of the recorded trace "small021": arrival in us, prompt and output tokens.
_REQUESTS = (
    *((1224, 115, 9), (1224, 47, 18), (2943, 66, 13), (3472, 100, 17), (3472, 89, 20)),
    *((5815, 5, 5), (6078, 11, 3), (7358, 70, 19), (7358, 68, 19)),
)
_SEQS = 6
_BLOCK = 16


def vllm_steps(
    step: int = 25,
    max_num_batched_tokens: int = 64,
    num_gpu_blocks: int = 20,
    watermark: float = 0.05,
    release: str = "0.33.0",
    ghost: dict[str, Any] | None = None,
) -> svg.Figure:
    """Draw one step, and the run around it, of nine requests under vLLM's rules.

    With the default settings this is the recorded trace "small021" of vLLM 0.33.0, and with
    release 0.11.2 that of vLLM 0.11.2, step for step. Its clock is made up: 0.2 ms per step, 0.04
    ms per prefill token, 0.5 ms per decode.

    Parameters
    ----------
    step : int
        The step to look at; the last one if the run is shorter.
    max_num_batched_tokens : int
        Token budget.
    num_gpu_blocks : int
        KV blocks of 16 tokens, the null block included.
    watermark : float
        Share of the blocks that an admission leaves free (0.33.0 only).
    release : {"0.33.0", "0.11.2"}
    ghost : dict, optional
        The parameters of the default run, to be kept visible.

    Raises
    ------
    InputError
        If a number is out of range or the release is not known.
    """
    result = _run(max_num_batched_tokens, num_gpu_blocks, watermark, release)
    if step < 0:
        raise InputError(f"vllm_steps: step must be 0 or more, not {step!r}")
    record = result.step_records[min(step, len(result.step_records) - 1)]

    parts = [
        svg.Part(f"r{s.id}", s.tokens, "decode" if s.decode else "prefill")
        for s in record.scheduled
    ]
    title = f"Step {record.index}: its token budget"
    bar = svg.BudgetBar(parts, max_num_batched_tokens, title=title)

    timeline = svg.Timeline(unit="ms", title="Who runs, who waits, who is thrown out")
    lived = lives(result, stalled="no token budget left")
    for r in result.records:
        first = None if r.first_token_ns is None else r.first_token_ns / NS_PER_MS
        row = f"r{r.request.id}", lived[r.request.id]
        timeline.row(*row, arrival=r.request.arrival_ms, first_token=first)
    middle = (record.start_ns + record.end_ns) / 2 / NS_PER_MS
    timeline.vline(middle, f"step {record.index}")

    memory = svg.Chart("", "KV blocks free", height=105, legend="top")
    memory.step("after each plan", *_series(result, "free"), fill=True)
    if ghost:
        keys = ("max_num_batched_tokens", "num_gpu_blocks", "watermark", "release")
        before = _run(*(ghost[key] for key in keys))
        memory.step("with the default settings", *_series(before, "free"), ghost=True)
    memory.vline(middle)
    people = svg.Chart("Time (ms)", "Requests", height=105, legend="top")
    people.step("running", *_series(result, "running"), color=1)
    people.step("waiting", *_series(result, "waiting"), color=2)
    people.vline(middle)
    return svg.figure(
        "vllm-steps",
        bar,
        timeline,
        memory,
        people,
        title="Nine requests under vLLM's rules, step by step",
        summary=_told(result, record),
        table=_table(result),
        share_x=True,
    )


@functools.lru_cache(maxsize=64)
def _run(budget: int, blocks: int, watermark: float, release: str) -> Result:
    """Run the nine requests; looking at another step runs nothing again."""
    requests = [
        Request(i, arrival * NS_PER_US, prompt, output)
        for i, (arrival, prompt, output) in enumerate(_REQUESTS)
    ]
    policy = policies.VLLM(budget, _SEQS, watermark=watermark, release=release)
    memory = KVCache(blocks, _BLOCK, null_block=True)
    return simulate(requests, policy, cost=cost.TOY, kv=memory, record_steps=True)


def _series(result: Result, what: str) -> tuple[list[float], list[int]]:
    """Return the starts of the steps and a number after each plan, with the end of the run."""
    count: dict[str, Callable[[trace.StepRecord], int]] = {
        "free": lambda s: s.free_blocks[1],
        "running": lambda s: len(s.running),
        "waiting": lambda s: len(s.waiting),
    }
    values = [count[what](s) for s in result.step_records]
    ends = {"free": result.step_records[-1].free_blocks[2]}
    times = [*(s.start_ns for s in result.step_records), result.end_ns]
    return [t / NS_PER_MS for t in times], [*values, ends.get(what, 0)]


def _told(result: Result, record: trace.StepRecord) -> str:
    """Say what the step did and how the run went."""
    given = ", ".join(f"r{s.id} {s.tokens}" for s in record.scheduled) or "nobody"
    parts = [f"Step {record.index} of 0 to {len(result.step_records) - 1} schedules {given}"]
    if record.preempted:
        gone = " and ".join(f"r{rid}" for rid in record.preempted)
        parts.append(f"{gone} preempted, so nobody is admitted")
    parts += list(record.reasons.values())[:1]
    before, after, end = record.free_blocks
    parts.append(f"free blocks {before} before the plan, {after} after it, {end} at the end")
    once = sum(r.request.prompt_len + r.request.output_len - 1 for r in result.records)
    again = sum(x.tokens for s in result.step_records for x in s.scheduled) - once
    ttft, gap = result.ttft_ms.mean or 0.0, result.itl_ms.max or 0.0
    times = "1 preemption" if result.preemptions == 1 else f"{result.preemptions} preemptions"
    return (
        f"{'; '.join(parts)}. Whole run: {times}, {again} tokens computed again, mean "
        f"TTFT {ttft:.1f} ms, longest gap {gap:.1f} ms, end at {result.end_ns / NS_PER_MS:.1f} ms."
    )


def _table(
    result: Result,
) -> tuple[list[str], list[list[svg.Cell]]]:
    """Return one row per step."""

    def names(ids: Iterable[int]) -> str:
        return " ".join(f"r{rid}" for rid in ids) or "-"

    header = ["step", "start (ms)", "scheduled", "preempted", "finished"]
    header += ["free before", "free after", "free at end", "running", "waiting"]
    rows: list[list[svg.Cell]] = []
    for s in result.step_records:
        given = " ".join(f"r{x.id}:{x.tokens}" for x in s.scheduled) or "-"
        lists = [given, names(s.preempted), names(s.finished)]
        ends = [names(s.running), names(s.waiting)]
        rows.append([str(s.index), s.start_ns / NS_PER_MS, *lists, *s.free_blocks, *ends])
    return header, rows
