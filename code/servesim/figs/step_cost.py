"""The live figure of the chapter on step-cost: what a decode step spends its time on."""

from __future__ import annotations

from typing import Any

from .. import cost, svg
from ..errors import InputError
from ..request import NS_PER_MS

_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_GPUS = {
    "1 H100": ("h100", 1),
    "8 H100": ("h100", 8),
    "1 A100": ("a100", 1),
    "8 A100": ("a100", 8),
}
_GB = 80  # memory of either GPU, by its data sheet


def roofline(
    batch: int = 32,
    context: int = 1024,
    model: str = "llama-3-8b",
    gpus: str = "1 H100",
    ghost: dict[str, Any] | None = None,
) -> svg.Figure:
    """Draw what bounds a decode step: reading the weights, reading the KV cache, or arithmetic.

    Parameters
    ----------
    batch : int
        Sequences that decode in the step.
    context : int
        Tokens of context of each.
    model : {"llama-3-8b", "opt-13b", "llama-2-70b"}
    gpus : {"1 H100", "8 H100", "1 A100", "8 A100"}
    ghost : dict, optional
        The parameters of the default run, to be kept visible.

    Raises
    ------
    InputError
        If a number is not positive, or the model or the GPUs are not known.
    """
    if gpus not in _GPUS:
        raise InputError(f"roofline: no GPUs {gpus!r}; use one of {', '.join(_GPUS)}")
    if batch < 1 or context < 1:
        raise InputError(f"roofline: batch and context must be 1 or more, not {batch}, {context}")
    weights, kv, arithmetic = _ms(batch, context, model, gpus)
    step = max(weights + kv, arithmetic)

    split = svg.Chart(
        svg.Axis(categories=("memory", "arithmetic")),
        "Time in this step (ms)",
        title="What the step waits for: the higher column",
        height=150,
        legend="top",
        stacked=True,
    )
    split.bars("weights", [weights, None])
    split.bars("KV cache", [kv, None], color=3)
    split.bars("arithmetic", [None, arithmetic], color=2)
    split.hline(step, f"the step: {svg.fmt(step)} ms")

    each = svg.Chart(
        svg.Axis("Batch size (sequences)", "log2"),
        svg.Axis("Step time = time per token of each sequence (ms)", "log"),
        title="What one sequence feels",
        height=150,
        legend="top",
    )
    shared = svg.Chart(
        svg.Axis("Batch size (sequences)", "log2"),
        svg.Axis("Step time / batch size (ms per token)", "log"),
        title="What one token costs",
        height=150,
        legend="none",
    )
    rows = [_row(b, context, model, gpus) for b in _BATCHES]
    for chart, column, mark in ((each, 4, step), (shared, 5, step / batch)):
        if ghost:
            before = [_row(b, ghost["context"], ghost["model"], ghost["gpus"]) for b in _BATCHES]
            chart.line("default", _BATCHES, [r[column] for r in before], ghost=True)
        name = f"{context} tokens of context each"
        chart.line(name, _BATCHES, [r[column] for r in rows], color=1)
        chart.scatter("this step", [batch], [mark], color=2)
    each.hline(weights, "the weights alone")
    ridge = _ridge(gpus)
    each.vline(ridge, f"ridge, {ridge:.0f}")
    shared.vline(ridge)
    header = ["batch", "weights (ms)", "KV cache (ms)", "arithmetic (ms)"]
    header += ["step (ms)", "per token (ms)"]
    return svg.figure(
        "roofline",
        split,
        each,
        shared,
        title="A decode step by the roofline: weights, KV cache and arithmetic",
        summary=_told(batch, context, model, gpus),
        table=(header, [[str(b), *r[1:]] for b, r in zip(_BATCHES, rows, strict=True)]),
    )


def _ms(batch: int, context: int, model: str, gpus: str) -> tuple[float, float, float]:
    """Return the time for the weights, for the KV cache and for the arithmetic, in ms."""
    gpu, count = _GPUS[gpus]
    price = cost.Roofline(model, gpu, count)
    work = cost.Work(decodes=batch, context_tokens=batch * context)
    weights = price.memory_ns(cost.Work())
    times = weights, price.memory_ns(work) - weights, price.compute_ns(work)
    return times[0] / NS_PER_MS, times[1] / NS_PER_MS, times[2] / NS_PER_MS


def _row(batch: int, context: int, model: str, gpus: str) -> list[float]:
    """Return batch size, the three times, the step and the step per token, in ms."""
    weights, kv, arithmetic = _ms(batch, context, model, gpus)
    step = max(weights + kv, arithmetic)
    return [batch, weights, kv, arithmetic, step, step / batch]


def _ridge(gpus: str) -> float:
    """Return the FLOP per byte at which arithmetic and memory take equally long."""
    gpu = cost.GPUS[_GPUS[gpus][0]]
    return gpu.flops / gpu.bandwidth


def _told(batch: int, context: int, model: str, gpus: str) -> str:
    """Say what the step costs, what bounds it, and whether it fits into memory."""
    weights, kv, arithmetic = _ms(batch, context, model, gpus)
    step = max(weights + kv, arithmetic)
    alone = _row(1, context, model, gpus)[4]
    if arithmetic >= weights + kv:
        bound = "arithmetic"
    else:
        bound = "the weights" if weights >= kv else "the KV cache"
    shape = cost.MODELS[model]
    held = (shape.parameters * shape.weight_bytes + shape.kv_bytes * batch * context) / 1e9
    room = _GB * _GPUS[gpus][1]
    fits = "fits" if held <= room else "does not fit"
    return (
        f"{model} on {gpus}, {batch} sequences with {context} tokens each: a step takes "
        f"{step:.2f} ms (weights {weights:.2f}, KV cache {kv:.2f}, arithmetic {arithmetic:.2f}), "
        f"{step / alone:.2f} times what it takes for one sequence; mostly {bound}. "
        f"{step / batch:.3f} ms per token. It needs {held:.0f} GB, which {fits} {room} GB."
    )
