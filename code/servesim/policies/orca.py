"""Orca's memory: continuous batching that reserves each output ahead, in one piece."""

from __future__ import annotations

from ..checks import one_of, whole_from
from ..errors import InputError
from ..kv import power_of_two
from .continuous import Continuous


class Orca(Continuous):
    """Continuous batching that sets aside room for a whole output when a request joins.

    The three baselines of the vLLM paper, which differ in how much they set aside. They ran on a
    cache without paging: use ``KVCache(..., contiguous=True)``.

    Parameters
    ----------
    reserve : {"oracle", "pow2", "max"}
        "oracle" knows the output's true length. "pow2" rounds it up to the next power of two (at
        most twice too much). "max" assumes that prompt and output take all of `max_len`.
    max_len : int
        Longest prompt and output together (2048: OPT's limit).
    max_running : int or None
        Places in the batch; None for as many as the KV cache holds.
    """

    def __init__(
        self, reserve: str = "oracle", max_len: int = 2048, max_running: int | None = None
    ) -> None:
        super().__init__(max_running)
        whole_from(2, max_len=max_len)
        one_of(("oracle", "pow2", "max"), reserve=reserve)
        self.reserve, self.max_len = reserve, max_len

    def predict(self, prompt_len: int, output_len: int) -> int:
        """Return how many output tokens to set room aside for."""
        longest = self.max_len - prompt_len
        if self.reserve == "oracle":
            return output_len
        if output_len > longest:
            raise InputError(
                f"orca: {prompt_len} + {output_len} tokens are above max_len={self.max_len}"
            )
        return longest if self.reserve == "max" else min(power_of_two(output_len), longest)
