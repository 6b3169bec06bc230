"""Hidden cases of the tenants assignment: fresh draws of the public ones."""

import random

from servesim.grade import Case
from servesim.grade.assignments.tenants import BATCH, CHAT, EVEN, LONG, SHORT, stream, together


def cases(seed):
    """Return both tenants under load, chat after a pause, and a flood."""
    rng = random.Random(seed)

    def draw(tenant, n, rate, lengths, start_s=0):
        return stream(tenant, n, rate, lengths, rng.randrange(2**32), start_s)

    both = together(draw(CHAT, 35, 20.0, EVEN), draw(BATCH, 30, 20.0, EVEN))
    late = together(draw(BATCH, 40, 20.0, EVEN), draw(CHAT, 30, 20.0, EVEN, 8.0))
    flood = together(draw(CHAT, 25, 1.5, SHORT), draw(BATCH, 30, 20.0, LONG))
    return [
        Case("both#1", both, {"slots": rng.choice((6, 8))}),
        Case("late#1", late, {"slots": 8}),
        Case("flood#1", flood, {"slots": 8}),
    ]
