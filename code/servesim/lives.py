"""What each request was doing when, as a `svg.Timeline` draws it."""

from __future__ import annotations

from . import svg, trace
from .metrics import Result
from .request import NS_PER_MS


def lives(
    result: Result, unit_ns: int = NS_PER_MS, stalled: str = ""
) -> dict[int, list[svg.Segment]]:
    """Return the stretches of each request's life, by request id.

    Parameters
    ----------
    result : Result
        As for `servesim.trace.segments`.
    unit_ns : int
        Nanoseconds in a unit of the time axis.
    stalled : str
        What to note on a stretch in the batch without tokens, which is drawn as idle.

    Raises
    ------
    InputError
        If there was a preemption and there are no step records.
    """
    found: dict[int, list[svg.Segment]] = {rid: [] for rid in result.records.column("id")}
    for s in trace.segments(result):
        kind, note = ("idle", stalled) if s.kind == "stalled" else (s.kind, "")
        found[s.id].append(svg.Segment(s.start_ns / unit_ns, s.end_ns / unit_ns, kind, note))
    return found
