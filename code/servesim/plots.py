"""Analysis plots with matplotlib. Live figures are drawn by `servesim.figs` instead.

Each function draws into the axes it is given, or makes its own, and returns them. Without
matplotlib (in a browser with no network) a call says so in one sentence, and the chapter goes on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .checks import instance
from .errors import InputError, brief
from .metrics import Distribution, Result
from .request import NS_PER_MS, NS_PER_S, Request
from .svg import PALETTE
from .trace import segments

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))
MARKERS = "os^DvxP*"
HATCHES = ("", "//", "..", "xx", "--", "\\\\")

KIND_LOOKS: dict[str, tuple[str, str]] = {
    "waiting": ("#D0D4D9", ""),
    "prefill": (PALETTE[1], "//"),
    "decode": (PALETTE[0], ""),
    "stalled": (PALETTE[3], ".."),
    "preempted": (PALETTE[4], "xx"),
}
"""Color and hatch for what a request is doing."""


class NoPlotsError(ImportError):
    """matplotlib is missing."""


Args = ParamSpec("Args")
Drawn = TypeVar("Drawn")


def plot(draw: Callable[Args, Drawn]) -> Callable[Args, Drawn | None]:
    """Let a plotting function say in one sentence that matplotlib is missing."""

    @functools.wraps(draw)
    def drawn(*args: Args.args, **kwargs: Args.kwargs) -> Drawn | None:
        try:
            return draw(*args, **kwargs)
        except NoPlotsError as error:
            print(error)
            return None

    return drawn


def axes(width: float = 7.0, height: float = 3.5) -> Axes:
    """Return new axes in the book's style.

    Parameters
    ----------
    width, height : float
        In inches.

    Raises
    ------
    NoPlotsError
        If matplotlib is not installed.
    """
    try:
        from cycler import cycler
        from matplotlib import pyplot as plt
    except ImportError:
        raise NoPlotsError(
            "this plot needs matplotlib, which is not installed here; everything else goes on"
        ) from None
    style: Any = {
        # From the seventh on colors come again, each with the next line style.
        "axes.prop_cycle": cycler(color=PALETTE * 2)
        + cycler(linestyle=LINE_STYLES + LINE_STYLES[1:] + LINE_STYLES[:1]),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.grid": True,
        "grid.color": "#E3E6EA",
        "figure.dpi": 120,
        "font.size": 11,
    }
    # A notebook's backend sets itself up when first asked for. Inside the context what it sets
    # would be undone, and every figure after the first would not be shown.
    plt.draw_if_interactive()  # type: ignore[no-untyped-call]
    with plt.rc_context(style):
        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    return ax


@plot
def timeline(result: Result, ax: Axes | None = None) -> Axes:
    """Draw who ran when: one row per request, time to the right.

    Parameters
    ----------
    result : Result
        Of a run with ``record_steps=True``.
    ax : Axes, optional
    """
    instance(Result, result=result)
    ax = ax or axes(height=1.2 + 0.22 * len(result.records))
    order = {r.request.id: i for i, r in enumerate(result.records)}
    for s in segments(result):
        color, hatch = KIND_LOOKS[s.kind]
        start, end = s.start_ns / NS_PER_S, s.end_ns / NS_PER_S
        ax.barh(order[s.id], end - start, left=start, color=color, hatch=hatch, edgecolor="white")
    drawn = dict.fromkeys(s.kind for s in segments(result))
    handles = [
        ax.barh(0, 0, color=KIND_LOOKS[k][0], hatch=KIND_LOOKS[k][1], edgecolor="white", label=k)
        for k in KIND_LOOKS
        if k in drawn
    ]
    ax.set(xlabel="time (s)", ylabel="request", yticks=list(order.values()))
    ax.set_yticklabels([f"r{rid}" for rid in order])
    ax.invert_yaxis()
    _legend_below(ax, handles)
    return ax


def _legend_below(ax: Axes, handles: Sequence[Any]) -> None:
    """Put a legend under the x axis's label, however low the axes are."""
    from matplotlib.transforms import ScaledTranslation

    below = ax.transAxes + ScaledTranslation(0, -0.5, ax.figure.dpi_scale_trans)
    where: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "bbox_transform": below}
    ax.legend(handles=handles, ncols=5, frameon=False, **where)


@plot
def cdf(
    distributions: dict[str, Distribution], xlabel: str, ax: Axes | None = None, log: bool = False
) -> Axes:
    """Draw distributions as the share of values that do not exceed x.

    Parameters
    ----------
    distributions : dict of str to Distribution
        By label.
    xlabel : str
        With its unit.
    log : bool
        Logarithmic x axis.
    """
    ax = ax or axes()
    levels = [p / 2 for p in range(201)]
    for label, d in distributions.items():
        ax.plot([d.percentile(p) or 0.0 for p in levels], levels, label=label)
    ax.set(xlabel=xlabel, ylabel="share of values not above (%)", ylim=(0, 101))
    if log:
        ax.set_xscale("log")
    ax.legend(frameon=False)
    return ax


@plot
def lines(
    x: Sequence[float],
    ys: dict[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
    ax: Axes | None = None,
) -> Axes:
    """Draw one line per label over common x values, each with its own marker."""
    ax = ax or axes()
    for marker, (label, y) in zip(MARKERS * len(ys), ys.items(), strict=False):
        ax.plot(x, y, marker=marker, label=label)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    if len(ys) > 1:
        ax.legend(frameon=False)
    return ax


@plot
def theory(
    x: Sequence[float],
    runs: dict[str, Sequence[float]],
    formulas: dict[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
    ax: Axes | None = None,
    log: str = "",
    errors: dict[str, Sequence[float]] | None = None,
) -> Axes:
    """Draw what runs gave as dotted markers, and a formula as a plain line of the same color.

    Parameters
    ----------
    x : sequence of float
        Common to all.
    runs, formulas : dict of str to sequence of float
        By label. Not every run needs a formula.
    xlabel, ylabel : str
        With their units.
    ax : Axes, optional
    log : str
        Axes to be logarithmic: "x" (to base 2), "y" or "xy".
    errors : dict of str to sequence of float, optional
        Half the width of each run's confidence interval, by label; drawn as a bar.
    """
    ax = ax or axes()
    for i, (label, y) in enumerate(runs.items()):
        color, marker = PALETTE[i % len(PALETTE)], "os^DPX"[i % 6]
        ax.plot(x, y, linestyle=":", linewidth=1, color=color, marker=marker, label=label)
        if errors and label in errors:
            ax.errorbar(x, y, yerr=errors[label], fmt="none", color=color, capsize=4)
        if label in formulas:
            ax.plot(x, formulas[label], color=color, marker="", linestyle="-")
    if "x" in log:
        ax.set_xscale("log", base=2)
        ax.set_xticks(list(x), [f"{v:g}" for v in x])
    if "y" in log:
        ax.set_yscale("log")
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.legend(frameon=False)
    return ax


@plot
def arrivals(workloads: dict[str, Sequence[Request]], ax: Axes | None = None) -> Axes:
    """Draw when requests arrive: one row of strokes per workload.

    Parameters
    ----------
    workloads : dict of str to sequence of Request
        By label, from top to bottom.
    ax : Axes, optional
    """
    ax = ax or axes(height=0.9 + 0.55 * len(workloads))
    times = [[r.arrival_s for r in requests] for requests in workloads.values()]
    rows = range(len(workloads), 0, -1)
    colors = [PALETTE[i % len(PALETTE)] for i in range(len(workloads))]
    ax.eventplot(times, lineoffsets=list(rows), linelengths=0.7, linewidths=1.3, colors=colors)
    ax.set(xlabel="time (s)")
    ax.set_yticks(list(rows), list(workloads))
    ax.grid(axis="y", visible=False)
    return ax


@plot
def life(result: Result, request_id: int, ax: Axes | None = None) -> Axes:
    """Draw one request from its arrival to its last token, with its latencies.

    Parameters
    ----------
    result : Result
        Of a run with ``record_steps=True``, in which the request was finished.
    request_id : int
    ax : Axes, optional

    Raises
    ------
    InputError
        If there is no such request, or it was not finished.
    """
    instance(Result, result=result)
    record = next((r for r in result.finished if r.request.id == request_id), None)
    if record is None:
        raise InputError(f"life: request_id {brief(request_id)} is of no request that was finished")
    ax = ax or axes(height=3.1)
    bars: dict[str, Any] = {}
    for s in segments(result):
        if s.id == request_id:
            color, hatch = KIND_LOOKS[s.kind]
            start, end = s.start_ns / NS_PER_MS, s.end_ns / NS_PER_MS
            style: Any = {"color": color, "hatch": hatch, "edgecolor": "white"}
            bars[s.kind] = ax.barh(0, end - start, 0.5, left=start, label=s.kind, **style)
    tokens = [t / NS_PER_MS for t in record.token_times_ns()]
    look: Any = {"color": "white", "markeredgecolor": "black", "label": "token"}
    dots = ax.plot(tokens, [0] * len(tokens), "o", **look)
    arrival = record.request.arrival_ms
    first_step = (record.first_scheduled_ns or 0) / NS_PER_MS
    spans = [
        ("queueing time", arrival, first_step, 0.6),
        ("TTFT", arrival, tokens[0], -0.6),
        ("first to last token", tokens[0], tokens[-1], -0.6),
        ("E2E", arrival, tokens[-1], -1.2),
        *(("ITL" if i == 0 else "", a, b, 0.6) for i, (a, b) in enumerate(pairwise(tokens))),
    ]
    for label, start, end, y in spans:
        ax.annotate("", (end, y), (start, y), arrowprops={"arrowstyle": "|-|,widthA=.3,widthB=.3"})
        ax.text((start + end) / 2, y + 0.12, label, ha="center")
    rim = 0.04 * (tokens[-1] - arrival)
    ax.set(xlabel="time (ms)", xlim=(arrival - rim, tokens[-1] + rim), ylim=(-1.5, 1.2))
    ax.set_yticks([0], [f"r{request_id}"])
    ax.grid(axis="y", visible=False)
    _legend_below(ax, [*bars.values(), *dots])
    return ax


@plot
def shares(rows: dict[str, dict[str, float]], xlabel: str, ax: Axes | None = None) -> Axes:
    """Draw what parts a whole is made of: one horizontal bar per row, its parts end to end.

    Parameters
    ----------
    rows : dict of str to dict of str to float
        Parts by label, for each row from top to bottom; all rows have the same parts.
    xlabel : str
        With its unit.
    ax : Axes, optional
    """
    ax = ax or axes(height=1.2 + 0.42 * len(rows))
    names = list(rows)
    left = [0.0] * len(names)
    for i, part in enumerate(next(iter(rows.values()))):
        widths = [rows[name][part] for name in names]
        color, hatch = PALETTE[i % len(PALETTE)], HATCHES[i % len(HATCHES)]
        ax.barh(names, widths, left=left, color=color, hatch=hatch, edgecolor="white", label=part)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    ax.set(xlabel=xlabel, xlim=(0, max(left)))
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
    return ax


@plot
def against(
    ours: dict[str, float],
    published: dict[str, float],
    xlabel: str,
    ax: Axes | None = None,
) -> Axes:
    """Draw pairs of numbers, ours and a published one, and write the difference beside each.

    Parameters
    ----------
    ours, published : dict of str to float
        Positive, by the same labels, from top to bottom.
    xlabel : str
        With its unit; the axis is logarithmic.
    ax : Axes, optional
    """
    ax = ax or axes(height=1.3 + 0.27 * len(ours))
    rows = range(len(ours))
    pairs = [(ours[label], published[label]) for label in ours]
    ax.hlines(rows, *zip(*pairs, strict=True), color="#7B8794", linewidth=1)
    for values, name, marker, color in ((published, "published", "o", 0), (ours, "ours", "s", 1)):
        x = [values[label] for label in ours]
        ax.plot(x, rows, marker, linestyle="", color=PALETTE[color], label=name)
    edge = 1.25 * max(*ours.values(), *published.values())
    for row, label in zip(rows, ours, strict=True):
        change = 100 * (ours[label] / published[label] - 1)
        ax.text(edge, row, f"{change:+.0f} %".replace("-", "\u2212"), va="center")
    ax.set_xscale("log")
    ax.set_xlim(right=2.2 * edge)
    ax.set_yticks(list(rows), list(ours))
    ax.set(xlabel=xlabel)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    _legend_below(ax, ax.get_legend_handles_labels()[0])
    return ax


@plot
def plane(
    curves: Mapping[str, Sequence[tuple[str, float, float]]],
    xlabel: str,
    ylabel: str,
    ax: Axes | None = None,
) -> Axes:
    """Draw what a setting trades against what: a curve per label, each point with its name.

    Parameters
    ----------
    curves : mapping of str to sequence of (str, float, float)
        By label: what was set, and the two results.
    xlabel, ylabel : str
        With their units. Both axes are logarithmic.
    ax : Axes, optional
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    ax = ax or axes(height=4.2)
    for k, (label, points) in enumerate(curves.items()):
        _, xs, ys = zip(*points, strict=True)
        look: Any = {"marker": MARKERS[k % len(MARKERS)]}
        if k >= len(PALETTE):  # its color was there before: a hollow marker around that one's
            look |= {"markersize": 11, "markerfacecolor": "none"}
        ax.plot(xs, ys, label=label, **look)
        for i, (name, x, y) in enumerate(points):
            # The first one often lies close to the second: its name goes below.
            away = (6, 6) if i else (6, -14)
            ax.annotate(name, (x, y), away, textcoords="offset points", fontsize=9)
    ax.set(xlabel=xlabel, ylabel=ylabel, xscale="log", yscale="log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())
    ax.legend(frameon=False)
    return ax
