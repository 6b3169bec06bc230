"""Several policies, the same work, the same prices: one row each."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .checks import instance, iterable, list_of, maybe
from .engine import SupportsPlan, simulate
from .errors import InputError
from .metrics import SLO, Result
from .request import Request
from .table import html_table, text_table, told
from .workload import Stream

COLUMNS: tuple[tuple[str, str], ...] = (
    ("finished", "d"),
    ("throughput tok/s", ".0f"),
    ("mean TTFT ms", ".1f"),
    ("P99 TTFT ms", ".1f"),
    ("mean TPOT ms", ".2f"),
    ("P99 ITL ms", ".1f"),
    ("mean E2E ms", ".1f"),
)


@dataclass
class Comparison:
    """Results side by side; shows as a table in a terminal and in a notebook."""

    results: list[Result]
    slo: SLO | None = None

    def __post_init__(self) -> None:
        self.results = list_of(Result, "results", self.results)
        maybe(instance, SLO, slo=self.slo)

    def rows(self) -> list[list[str]]:
        """Return header and one row per policy, as printed text."""
        header = ["policy", *(name for name, _ in COLUMNS)]
        if self.slo is not None:
            header += ["attainment %", "goodput req/s"]
        return [header, *map(self._row, self.results)]

    def _row(self, result: Result) -> list[str]:
        values: list[float | None] = [
            result.count("finished"),
            result.throughput_tok_s,
            result.ttft_ms.mean,
            result.ttft_ms.percentile(99),
            result.tpot_ms.mean,
            result.itl_ms.percentile(99),
            result.e2e_ms.mean,
        ]
        cells = [told(v, form) for v, (_, form) in zip(values, COLUMNS, strict=True)]
        if self.slo is not None:
            cells.append(told(100 * result.attainment(self.slo), ".1f"))
            cells.append(told(result.goodput_req_s(self.slo), ".2f"))
        return [result.policy + "*" * result.told_output_length, *cells]

    @property
    def note(self) -> str:
        """What the mark in the table means; nothing if there is none."""
        told = any(result.told_output_length for result in self.results)
        return "* is told each output's length" if told else ""

    def __str__(self) -> str:
        return "\n".join([*text_table(self.rows()), *filter(None, [self.note])])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return html_table(self.rows()) + note


def compare(
    requests: Sequence[Request] | Stream | Callable[[], Iterable[Request]],
    policies: Iterable[SupportsPlan],
    *,
    slo: SLO | None = None,
    **options: Any,
) -> Comparison:
    """Run the same requests under each policy.

    Parameters
    ----------
    requests : sequence of Request, Stream, or function
        A function is called for each policy and returns the workload anew.
    policies : iterable of policies
    slo : SLO, optional
        Adds attainment and goodput to the rows.
    **options
        As for `servesim.simulate`: cost, kv, never_fits and so on.
    """
    maybe(instance, SLO, slo=slo)
    policies = list(iterable("policies", policies, "policies"))
    if not policies:
        raise InputError("policies is empty: give at least one to compare")
    make = requests if callable(requests) else lambda: requests
    if isinstance(requests, Iterator):
        raise InputError(
            "compare needs the workload once per policy, and a generator can be read once only: "
            "give a list, a workload.Stream, or a function that makes the generator"
        )
    return Comparison([simulate(make(), p, **options) for p in policies], slo)
