"""How short a run can be, whatever the policy. The chapter on validation derives it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .checks import at_least, instance, list_of
from .errors import InputError
from .request import Request


class Prices(NamedTuple):
    """The prices of `servesim.cost.Affine`, in whole picoseconds.

    Attributes
    ----------
    step, decode_step : int
        Any step; and on top of it, one in which anyone decodes.
    prefill, decode, context, attention : int
        Per prompt token, decoding sequence, token of context, pair of prompt tokens.
    one_prompt : bool
        Of the prompts in a step only the longest is charged.
    """

    step: int
    decode_step: int
    prefill: int
    decode: int
    context: int
    attention: int
    one_prompt: bool = False


def makespan_ns(requests: Iterable[Request], prices: Prices, room: int | None = None) -> int:
    """Return a makespan that no policy beats, in nanoseconds.

    Whoever arrives from some moment on is served after it. That takes as many steps as the
    longest output has tokens, or as the KV cache needs to hold all in turn; every prompt token;
    and for every further output token a decode or, if that is cheaper, a recomputation. The
    bound is the worst of these moments.

    Parameters
    ----------
    requests : iterable of Request
        All of them are served to the end.
    prices : Prices
    room : int or None
        Tokens that the KV cache holds; None for no limit.

    Raises
    ------
    InputError
        If there is no request.
    """
    instance(Prices, prices=prices)
    at_least(1, room=room)
    ordered = sorted(list_of(Request, "requests", requests), key=lambda r: r.arrival_ns)
    if not ordered:
        raise InputError("requests are missing: a lower bound needs at least one request")
    # Recomputing r takes prompt_len + 1 prefill tokens or more. What a token of context costs
    # either way is counted apart, the rest is the smaller of a decode and a recomputation.
    context = 0 if prices.one_prompt else min(prices.context, prices.prefill)
    extra = prices.decode_step + prices.decode
    work = prompts = longest = held = held_later = best = 0
    for r in reversed(ordered):
        later = r.output_len - 1  # tokens after the first
        read = later * r.prompt_len + later * r.output_len // 2  # context of all of them
        again = (prices.prefill - context) * (r.prompt_len + 1)
        token = 0 if prices.one_prompt else min(prices.decode, again)
        if later:
            extra = min(extra, min(prices.decode_step + prices.decode, again) - token)
        work += prices.attention * r.prompt_len**2 + later * token + read * context
        prompt = prices.prefill * r.prompt_len
        prompts = max(prompts, prompt) if prices.one_prompt else prompts + prompt
        longest, held = max(longest, r.output_len), held + r.prompt_len + read
        held_later += read
        steps, steps_later = longest, longest - 1
        if room is not None:
            steps = max(steps, -(-held // room))
            steps_later = max(steps_later, -(-held_later // room))
        fixed, surcharge = steps * prices.step + work, steps_later * extra
        both = max(prompts, surcharge) if prices.one_prompt else prompts + surcharge
        best = max(best, 1000 * r.arrival_ns + fixed + both)
    return -(-best // 1000) - ordered[0].arrival_ns
