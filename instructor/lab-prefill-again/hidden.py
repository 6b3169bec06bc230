"""Hidden cases of the lab: other prompts that come back too early."""

import random

from servesim.grade.assignments.lab_prefill_again import busy, server
from servesim.grade.assignments.labs import by_hand


def cases(seed):
    """Return the public cases with other numbers."""
    rng = random.Random(seed)
    again = [
        (0, rng.randint(220, 280), rng.randint(180, 220)),
        (rng.randint(400, 700), rng.randint(280, 340), 20),
        (800, 40, 20),
    ]
    return [
        server("again#1", by_hand(*again)),
        server("busy#1", busy(24, seed=rng.randrange(2**32))),
        server("busy#2", busy(30, seed=rng.randrange(2**32))),
    ]
