"""By hand, in the chapter on KV blocks: who fits, by three ways to hand out memory."""

from __future__ import annotations

import random

from .. import svg
from ..cost import Affine
from ..engine import simulate
from ..kv import KVCache, blocks_for
from ..metrics import Result
from ..policies import VLLM, Orca
from ..request import Request
from .exercise import Ask, Exercise, drawn, request

_TITLE = "Four requests, eight blocks of four tokens"
_BLOCKS, _SIZE = 8, 4
_WAYS = {
    "Reserved, any free blocks": (Orca("oracle"), False),
    "Reserved, in one piece": (Orca("oracle"), True),
    "Bought on demand": (VLLM(), False),
}


def fits(seed: int = 0) -> Exercise:
    """Ask how many requests are in the batch in step 0, by three ways to hand out memory."""
    requests = drawn(seed, _draw, _good)
    runs = _runs(requests)
    asks, maps, rows = [], [], []
    for name, run in runs.items():
        step = run.step_records[0]
        asks.append(Ask(name, "requests", len(step.running)))
        owners: list[str | None] = []
        for rid in step.running:
            owners += [f"r{rid}"] * step.blocks[rid]
        owners += [None] * (_BLOCKS - len(owners))
        slots = {f"r{r.id}": r.id + 1 for r in requests}
        maps.append(svg.BlockMap(owners, title=f"{name}: step 0", slots=slots, columns=_BLOCKS))
        rows.append([name, *(step.blocks.get(r.id) for r in requests)])
    names = [f"r{r.id}" for r in requests]
    chart = svg.Chart(
        svg.Axis("", categories=names), "Tokens", title="What each brings and gets", stacked=True
    )
    chart.bars("prompt", [r.prompt_len for r in requests], color=2)
    chart.bars("output", [r.output_len for r in requests], color=1)
    picture = svg.figure(
        "fits",
        chart,
        title=_TITLE,
        summary=f"All four arrive together at a cache of {_BLOCKS} blocks of {_SIZE} tokens. The "
        "last output token needs no place. How many requests are in the batch in step 0, first "
        "come, first served: if each reserves exactly what it will need at its end, in any free "
        "blocks; if in one piece of 1, 2, 4 or 8 blocks; and if blocks are bought on demand, so "
        "that only prompts count?",
        table=(
            ["request", "prompt (tokens)", "output (tokens)"],
            [[f"r{r.id}", r.prompt_len, r.output_len] for r in requests],
        ),
    )
    needs = ", ".join(f"r{r.id} {_need(r)}" for r in requests)
    worked = svg.figure(
        "fits",
        *maps,
        title=f"{_TITLE}, worked out",
        summary=f"Blocks needed at the end: {needs}. In one piece each number is rounded up to a "
        "power of two. Whoever does not fit holds up those behind.",
        table=(["blocks held in step 0", *names], rows),
    )
    return Exercise.of(picture, asks, worked)


def _draw(rng: random.Random) -> list[Request]:
    return [request(i, 0, rng.randint(3, 14), rng.randint(2, 9)) for i in range(4)]


def _need(r: Request) -> int:
    return blocks_for(r.prompt_len + r.output_len - 1, _SIZE)


def _runs(requests: list[Request]) -> dict[str, Result]:
    return {
        name: simulate(
            requests,
            policy,
            cost=Affine(base_ms=10),
            kv=KVCache(_BLOCKS, _SIZE, contiguous=one_piece),
            record_steps=True,
            max_steps=1,  # more is not asked for
        )
        for name, (policy, one_piece) in _WAYS.items()
    }


def _good(requests: list[Request]) -> bool:
    """Tell whether the three ways do not all give the same."""
    runs = _runs(requests).values()
    return len({len(run.step_records[0].running) for run in runs}) > 1
