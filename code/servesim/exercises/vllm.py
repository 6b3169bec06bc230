"""By hand, in the chapter on vLLM: when blocks run out, who is thrown out, and what it costs."""

from __future__ import annotations

import random

from .. import svg
from ..cost import Affine
from ..engine import simulate
from ..kv import KVCache
from ..metrics import Result
from ..policies import VLLM
from ..request import Request
from .exercise import Ask, Exercise, drawn, lives, request, steps

_TITLE = "Three requests and too few blocks"
_BUDGET, _BLOCKS = 8, 14


def thrown_out(seed: int = 0) -> Exercise:
    """Ask when vLLM's scheduler first preempts, how much work is lost, and when all is done."""
    requests = drawn(seed, _draw, _good)
    run = _run(requests)
    step, lost = _first(run)
    chart = svg.Chart(
        svg.Axis("", categories=[f"r{r.id}" for r in requests]),
        "Tokens",
        title="What each brings and gets",
        stacked=True,
    )
    chart.bars("prompt", [r.prompt_len for r in requests], color=2)
    chart.bars("output", [r.output_len for r in requests], color=1)
    picture = svg.figure(
        "thrown-out",
        chart,
        title=_TITLE,
        summary=f"All three are there in step 0. A block holds one token; there are {_BLOCKS} "
        f"blocks, and the budget is {_BUDGET} tokens a step. By the rules of release 0.33.0: in "
        "which step is somebody thrown out for the first time, how many tokens had that request "
        "computed, and how many steps does it take until everybody is done?",
        table=(
            ["request", "prompt (tokens)", "output (tokens)"],
            [[f"r{r.id}", r.prompt_len, r.output_len] for r in requests],
        ),
    )
    header, rows = steps(step=run)
    free = [s.free_blocks for s in run.step_records]
    worked = svg.figure(
        "thrown-out",
        lives(run, "Who runs, who waits, who is thrown out", unit="steps", label="Step"),
        title=f"{_TITLE}, worked out",
        summary=f"In step {step} the blocks do not last for those who run, and the last to join "
        f"loses {lost} computed tokens. Nobody is admitted in a step that throws somebody out, "
        "and later not before the whole prompt and what it had produced fit.",
        table=(
            [header[0], *header[3:], "free before", "free after"],
            [[row[0], *row[3:], *f[:2]] for row, f in zip(rows, free, strict=True)],
        ),
    )
    asks = (
        Ask("First step with a preemption", "", step),
        Ask("What it had computed", "tokens", lost),
        Ask("Until all are done", "steps", run.steps),
    )
    return Exercise.of(picture, asks, worked)


def _draw(rng: random.Random) -> list[Request]:
    return [request(i, 0, rng.randint(2, 7), rng.randint(3, 6)) for i in range(3)]


def _run(requests: list[Request]) -> Result:
    """Run them; every step takes 1 ms, so that times count steps."""
    policy, memory = VLLM(max_num_batched_tokens=_BUDGET), KVCache(_BLOCKS, block_size=1)
    return simulate(requests, policy, cost=Affine(base_ms=1), kv=memory, record_steps=True)


def _first(run: Result) -> tuple[int, int]:
    """Return the first step with a preemption, and the tokens that its victim had computed."""
    for before, step in zip(run.step_records, run.step_records[1:], strict=False):
        if step.preempted:
            return step.index, before.blocks[step.preempted[0]]  # a token a block
    return 0, 0


def _good(requests: list[Request]) -> bool:
    """Tell whether one preemption costs something, and the run is soon over."""
    run = _run(requests)
    step, lost = _first(run)
    return (
        run.preemptions == 1 and lost > 1 and run.steps <= 14 and len({step, lost, run.steps}) == 3
    )
