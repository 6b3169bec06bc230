"""Shortest first: short answers overtake long ones, as far as one can tell beforehand."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass

from ..request import Progress
from .vllm import VLLM


@dataclass(repr=False)
class ShortestFirst(VLLM):
    """vLLM's scheduler, but the queue is in the order of how much is probably left to produce.

    Parameters
    ----------
    error : float
        How wrong the predictions are. A length is off by a factor ``exp(error * z)`` with z drawn
        from the standard normal distribution, so two in three predictions lie within a factor of
        ``exp(error)``. With 0 the policy knows the true lengths.
    seed : int
        Of the errors.

    The others are those of `VLLM`.
    """

    knows_output_length = True
    error: float = 0.0
    seed: int = 0

    def predict(self, prompt_len: int, output_len: int) -> int:
        """Return the length, off by a random factor."""
        # Seeded by the lengths: asked twice, it says the same.
        z = random.Random(f"{self.seed}/{prompt_len}/{output_len}").gauss()
        return max(1, round(output_len * math.exp(min(self.error * z, 30.0))))

    def in_order(self, waiting: Iterable[Progress]) -> Iterable[Progress]:
        """Return the queue, shortest first."""
        return sorted(waiting, key=lambda r: (left(r), r.arrival_ns, r.id))


def left(r: Progress) -> int:
    """Return how many tokens a request is still expected to produce."""
    return max(1, (r.predicted_output or 1) - r.produced)
