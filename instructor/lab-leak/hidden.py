"""Hidden cases of the lab: other answers that end early."""

import random

from servesim.grade.assignments.lab_leak import draw, server


def cases(seed):
    """Return the public cases with other numbers."""
    rng = random.Random(seed)
    early = rng.randint(5, 30)
    return [
        server("early#1", draw(40, (1, early), seed=rng.randrange(2**32))),
        server("late#1", draw(24, (70, 128), seed=rng.randrange(2**32))),
    ]
