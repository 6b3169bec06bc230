"""What the engine keeps about a request in the system, and sums up over time."""

from __future__ import annotations

from .ledger import NEVER, Stint
from .request import Progress, Request


class Job:
    """A request in the system: what a policy may see, what it may not, and what to report."""

    __slots__ = (
        "after",
        "arrived_ns",
        "best",
        "claim",
        "done_at",
        "final",
        "first_scheduled_ns",
        "first_token_ns",
        "gap",
        "joined_ns",
        "last_token_ns",
        "progress",
        "request",
        "row",
        "stints",
        "target",
    )

    def __init__(
        self,
        request: Request,
        progress: Progress,
        row: int,
        arrived_ns: int,
        target: int,
        final: int,
        claim: int,
    ) -> None:
        self.request, self.progress = request, progress
        self.row = row  # in the ledger
        self.arrived_ns = arrived_ns
        self.target = target  # tokens to sample before it is done
        self.final = final  # tokens in the cache just before that
        self.claim = claim  # tokens that it reserves room for; 0 if it buys on demand
        self.best = 0  # most tokens it ever had in the cache
        self.joined_ns = NEVER  # when it last did; NEVER if it is not in it
        self.first_scheduled_ns = self.first_token_ns = self.last_token_ns = NEVER
        self.stints: list[Stint] = []  # when its tokens came, up to the stretch it is in
        self.after = NEVER  # tick after which it decodes with the others; NEVER if it does not
        self.gap = NEVER  # its own first gap in that stretch
        self.done_at = NEVER  # tick at which it will be done


class Past:
    """Integrals over time.

    Attributes
    ----------
    block_ns, token_ns : int
        Of KV blocks held, and of tokens in the cache.
    system_ns, running_ns : int
        Of requests in the system and in the batch; of those who are gone from there.
    promised_ns, claimed_ns : int
        Of tokens that those in the batch will have at their end, and have reserved room for; of
        those who are gone from there.
    """

    __slots__ = (
        "block_ns",
        "claimed_ns",
        "promised_ns",
        "running_ns",
        "system_ns",
        "token_ns",
    )

    def __init__(self) -> None:
        self.block_ns = self.token_ns = self.system_ns = 0
        self.running_ns = self.promised_ns = self.claimed_ns = 0

    def add_stay(self, job: Job, now: int) -> None:
        """Add a job's stay in the batch, from when it joined until now."""
        stay = now - job.joined_ns
        self.running_ns += stay
        self.promised_ns += job.final * stay
        self.claimed_ns += job.claim * stay
