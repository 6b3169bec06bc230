"""The live figure of the chapter on kv blocks: who holds which block, and who is thrown out."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence

from .. import policies, svg, trace, workload
from ..engine import simulate
from ..errors import InputError
from ..kv import KVCache, block_map
from ..metrics import Result
from ..request import NS_PER_S

_N = 12
_SEED = 4
_MAX_LEN = 256
_KINDS: dict[str, tuple[policies.Policy, bool]] = {
    "reserve the maximum": (policies.Orca("max", _MAX_LEN), True),
    "reserve a power of two": (policies.Orca("pow2", _MAX_LEN), True),
    "reserve exactly": (policies.Orca("oracle"), True),
    "reserve exactly, paged": (policies.Orca("oracle"), False),
    "on demand, paged": (policies.VLLM(), False),
}


def kv_blocks(
    memory: int = 640,
    block_size: int = 16,
    policy: str = "on demand, paged",
    moment: int = 40,
) -> svg.Figure:
    """Draw the KV cache block by block at one moment of a run, and how full it is over time.

    Twelve requests of 16 to 96 prompt tokens and 16 to 128 output tokens arrive within a second or
    so; prices are the default.

    Parameters
    ----------
    memory : int
        Tokens that the cache holds.
    block_size : int
        Tokens in a block.
    policy : str
        How memory is given out; see the chapter.
    moment : int
        Which step to show, in percent of the run.

    Raises
    ------
    InputError
        If a number is out of range or the policy is not known.
    """
    if policy not in _KINDS:
        known = "; ".join(_KINDS)
        raise InputError(f"kv_blocks: no {policy!r}; use one of {known}")
    if not 0 <= moment <= 100:
        raise InputError(f"kv_blocks: moment is a share of the run from 0 to 100, not {moment!r}")
    result = _run(memory // block_size, block_size, policy)
    if not result.finished:
        return _nobody_fits(memory, block_size, policy)
    steps = result.step_records
    shots = block_map(steps, result.kv)
    at = (len(steps) - 1) * moment // 100
    step, shot = steps[at], shots[at]

    cells = svg.BlockMap(
        [None if o is None else f"r{o}" for o in shot.owners],
        used=[n / block_size for n in shot.tokens],
        slots={f"r{r.request.id}": r.request.id + 1 for r in result.records},
        columns=16 if len(shot.owners) <= 128 else 32,  # chunks lie straight in such rows
        title=f"Step {step.index}: {len(step.running)} in the batch, {len(step.waiting)} waiting",
    )
    chart = _chart(result, [sum(s.tokens) for s in shots])
    chart.vline(step.start_ns / NS_PER_S, "map above")
    return svg.figure(
        "kv-blocks",
        cells,
        chart,
        title="KV blocks by owner at one moment, and memory over time",
        summary=_told(result, policy, sum(shot.tokens), step),
        table=_table(result),
    )


@functools.lru_cache(maxsize=32)
def _run(blocks: int, block_size: int, policy: str) -> Result:
    """Serve the twelve requests; those that can never fit are turned away."""
    requests = workload.poisson(_N, 12.0, (16, 96), (16, 128), _SEED)
    chosen, contiguous = _KINDS[policy]
    kv = KVCache(blocks, block_size, contiguous=contiguous)
    return simulate(requests, chosen, kv=kv, never_fits="reject", record_steps=True)


def _chart(result: Result, tokens: Sequence[int]) -> svg.Chart:
    """Return the memory over time: what is held, what is filled, and who was thrown out when."""
    steps, kv = result.step_records, result.kv
    limit = kv.usable * kv.block_size
    times = [s.start_ns / NS_PER_S for s in steps] + [result.end_ns / NS_PER_S]
    held = [(kv.usable - s.free_blocks[1]) * kv.block_size for s in steps]
    chart = svg.Chart(
        svg.Axis("Time (s)"),
        svg.Axis("Tokens", domain=(0, limit * 1.1)),
        title="Memory over time",
        height=130,
        legend="top",
    )
    chart.step("held", times, [*held, 0])
    chart.step("filled with tokens", times, [*tokens, 0])
    chart.hline(limit, f"all: {limit}")
    thrown = [s for s in steps if s.preempted]
    if thrown:
        chart.scatter("preemption", [s.start_ns / NS_PER_S for s in thrown], [limit] * len(thrown))
    return chart


def _told(result: Result, policy: str, filled: int, step: trace.StepRecord) -> str:
    """Say what the run and the moment show."""
    kv, split = result.kv, result.kv_split()
    limit = kv.usable * kv.block_size
    held = limit - step.free_blocks[1] * kv.block_size
    away = f", {len(result.rejected)} turned away" if result.rejected else ""
    return (
        f"{policy.capitalize()}, {kv.usable} blocks of {kv.block_size} tokens: "
        f"{result.mean_running:.1f} requests in the batch on average, "
        f"{result.preemptions} preemptions{away}, all done after {result.makespan_s:.2f} s. "
        f"Averaged over the run {split.tokens:.0f} % of the memory holds tokens and "
        f"{100 - split.tokens - split.free:.0f} % is held without; in step {step.index} it is "
        f"{100 * filled / limit:.0f} % and {100 * (held - filled) / limit:.0f} %."
    )


def _table(result: Result) -> tuple[list[str], list[list[svg.Cell]]]:
    """Return one row per request."""
    header = ["request", "prompt", "output", "arrives (s)", "first token (s)", "last token (s)"]
    header += ["preempted", "most blocks held"]
    most: Counter[int] = Counter()
    for step in result.step_records:
        for rid, blocks in step.blocks.items():
            most[rid] = max(most[rid], blocks)
    rows: list[list[svg.Cell]] = []
    for r in result.records:
        times = (r.request.arrival_ns, r.first_token_ns, r.last_token_ns)
        rows.append(
            [
                f"r{r.request.id}",
                r.request.prompt_len,
                r.request.output_len,
                *(None if t is None else round(t / NS_PER_S, 3) for t in times),
                r.preemptions,
                most[r.request.id],
            ]
        )
    return header, rows


def _nobody_fits(memory: int, block_size: int, policy: str) -> svg.Figure:
    """Return the empty map of a cache in which no request can ever fit."""
    blocks = memory // block_size
    return svg.figure(
        "kv-blocks",
        svg.BlockMap([None] * blocks, title="Every request was turned away"),
        title="KV blocks by owner at one moment, and memory over time",
        summary=f"{policy.capitalize()}, {blocks} blocks of {block_size} tokens: no request can "
        "ever fit, so all of them are turned away.",
    )
