"""Hidden cases of the lab: requests that never fit, in other places."""

import random

from servesim.grade.assignments.lab_never_fits import healthy, server
from servesim.grade.assignments.labs import by_hand


def cases(seed):
    """Return the public cases with other numbers."""
    rng = random.Random(seed)
    rows = [(5 * i, rng.randint(20, 440), rng.randint(5, 60)) for i in range(8)]
    for i in rng.sample(range(7), 2):
        rows[i] = (5 * i, rng.randint(449, 3000), 10)
    edge = [(0, 448, 64), (10, 449, 10), (20, rng.randint(450, 511), 10), (30, 100, 10)]
    rng.shuffle(edge)
    edge = [(10 * i, prompt, out) for i, (_, prompt, out) in enumerate(edge)]
    return [
        server("stuck#1", by_hand(*rows)),
        server("edge#1", by_hand(*edge)),
        server("healthy#1", healthy(20, seed=rng.randrange(2**32))),
    ]
