"""What a page of the book shows of an assignment."""

from __future__ import annotations

from ..book import Table, glue, table
from .assignment import Assignment, Performance
from .assignments import find
from .report import number


def rules(name: str) -> Table:
    """Return the rules of an assignment with their points."""
    rows: list[dict[str, object]] = []
    for rule in find(name).rules:
        demand = rule.demand
        if isinstance(rule, Performance):
            demand += (
                f" All points if its distance from the bound is at most {rule.full_at:g} × the "
                f"reference's, none from {rule.none_at:g} × on."
            )
        row: dict[str, object] = {"rule": rule.name, "points": number(rule.points)}
        rows.append(row | {"what must hold": demand})
    return table(rows)


def facts(*names: str) -> Table:
    """Return title, points, runs of a check and hours of some assignments."""
    rows: list[dict[str, object]] = []
    for name in names:
        a = find(name)
        rows.append(
            {
                "name": name,
                "title": a.title,
                "points": number(a.points),
                "about (hours)": number(a.hours),
                "runs of a check": a.runs,
            }
        )
    return table(rows)


def tell(name: str) -> Assignment:
    """Make an assignment's points and hours known to its page, and return it."""
    a = find(name)
    glue(f"{name}-points", number(a.points))
    glue(f"{name}-hours", number(a.hours))
    return a
