"""What the engine keeps about a request in the system, and about quantities over time."""

from __future__ import annotations

from .ledger import NEVER, Stint
from .request import Progress


class Job:
    """A request in the system: what a policy may see, what it may not, and what to report."""

    __slots__ = (
        "after",
        "best",
        "claim",
        "done_at",
        "final",
        "first_token_ns",
        "gap",
        "last_token_ns",
        "place",
        "progress",
        "row",
        "stints",
        "target",
    )

    def __init__(self, row: int, progress: Progress, target: int, final: int, claim: int) -> None:
        self.row = row  # in the ledger
        self.progress = progress
        self.target = target  # tokens to sample before it is done
        self.final = final  # tokens in the cache just before that
        self.claim = claim  # tokens that it reserves room for; 0 if it buys on demand
        self.best = 0  # most tokens it ever had in the cache
        self.place = 0  # in the order of joining the batch
        self.first_token_ns = self.last_token_ns = NEVER
        self.stints: list[Stint] = []  # when its tokens came, up to the stretch it is in
        self.after = NEVER  # tick after which it decodes with the others; NEVER if it does not
        self.gap = NEVER  # its own first gap in that stretch
        self.done_at = NEVER  # tick at which it will be done


class Level:
    """A quantity that goes up and down, and its integral over time.

    Changing it takes the same effort however much time has passed in between.
    """

    __slots__ = ("moment", "now")

    def __init__(self) -> None:
        self.now = self.moment = 0

    def add(self, amount: int, moment: int) -> None:
        """Change it by `amount`; `moment` is the amount times the time of the change."""
        self.now += amount
        self.moment += moment

    def integral(self, time_ns: int) -> int:
        """Return its integral up to a time."""
        return self.now * time_ns - self.moment
