"""Step through a run as through a program in a debugger.

``stepper(result)`` shows a run that was recorded, whatever policy made it: one of yours, or a
replayed trace of vLLM. ``stepper(requests, policies)`` runs the policies itself and lets the reader
choose among them; if all are built-in ones it also moves on the static page.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, fields
from typing import Any

from . import cost as prices
from .engine import SupportsPlan, simulate
from .errors import InputError
from .explore import Explorer
from .figs.stepper import draw
from .kv import KVCache
from .metrics import Result
from .policies import BUILT_IN
from .request import Request
from .spec import policy as named_policy
from .steps import Steps
from .story import Story
from .svg import Figure

Policies = str | SupportsPlan | Iterable[str | SupportsPlan] | Mapping[str, str | SupportsPlan]

_PRICES: dict[str, type[Any]] = {"affine": prices.Affine, "roofline": prices.Roofline}


def stepper(
    run: Result | Iterable[Request],
    policies: Policies = (),
    /,
    *,
    step: int = 0,
    cost: prices.Cost = prices.OPT_13B_A100,
    kv: KVCache | None = None,
    caption: str = "",
    id: str | None = None,
    **options: Any,
) -> Explorer:
    """Show a run step by step: clock, queue, batch, token budget, KV blocks, and why.

    Parameters
    ----------
    run : Result or iterable of Request
        A run with ``record_steps=True``, or the requests to run.
    policies : policy, text, list of these, or mapping of labels to these
        Needed with requests. A text names a policy as on the command line:
        ``"chunked:token_budget=512"``. The first one is shown at the start.
    step : int
        The step to start with.
    cost, kv, **options
        As for `servesim.simulate`.
    caption : str
        The conclusion, in a sentence.
    id : str, optional
        Id on the page; needed if one page shows two steppers.

    Returns
    -------
    Explorer

    Raises
    ------
    InputError
        If there are no recorded steps, or no policy to run.
    PlanError, PolicyError
        From the run, as in `servesim.simulate`.

    Examples
    --------
    >>> import servesim as ss
    >>> requests = ss.workload.poisson(4, rate=20, prompt=200, output=5, seed=1)
    >>> stepper(requests, ["continuous", "naive"])
    explore('servesim.figs:stepper')
    >>> stepper(ss.simulate(requests, ss.policies.VLLM(), record_steps=True))
    explore('stepper')
    """
    more: dict[str, Any] = {"caption": caption, "id": id or "stepper"}
    if isinstance(run, Result):
        if policies or options:
            raise InputError("stepper: a result has been run; give requests to run policies")
        story = Story(run)
        return _explorer(lambda step: draw(story, step), {"step": Steps(step)}, **more)

    requests, made = list(run), _labelled(policies)
    params: dict[str, object] = {"step": Steps(step)}
    if len(made) > 1:
        params = {"policy": list(made), **params}
    memory = kv or KVCache()
    told = _described(requests, made, cost, memory, options)
    if told is not None:
        fixed: dict[str, Any] = {"run": told}
        if len(made) == 1:
            fixed["policy"] = next(iter(made))
        return Explorer("servesim.figs:stepper", params, fixed=fixed, **more)

    stories: dict[str, Story] = {}

    def show(policy: str = next(iter(made)), step: int = 0) -> Figure:
        if policy not in stories:
            stories[policy] = Story(
                simulate(requests, made[policy], cost=cost, kv=memory, record_steps=True, **options)
            )
        return draw(stories[policy], step)

    return _explorer(show, params, **more)


def _explorer(show: Callable[..., Figure], params: dict[str, object], **more: Any) -> Explorer:
    show.__name__ = "stepper"
    return Explorer(show, params, **more)


def _labelled(policies: Policies) -> dict[str, SupportsPlan]:
    """Return each policy by its label: what was given, or the policy with its options."""
    if isinstance(policies, Mapping):
        given: list[tuple[str, str | SupportsPlan]] = list(policies.items())
    else:
        some: Any = policies if isinstance(policies, list | tuple) else [policies]
        given = [(p if isinstance(p, str) else _name(p), p) for p in some]
    if not given:
        raise InputError(
            "stepper: there is no policy to run the requests; write stepper(requests, MyPolicy())"
        )
    labels = [label for label, _ in given]
    if len(set(labels)) < len(labels):
        raise InputError(
            f"stepper: two policies are called {max(labels, key=labels.count)!r}; give a mapping, "
            "{'first': ..., 'second': ...}"
        )
    return {label: named_policy(p) if isinstance(p, str) else p for label, p in given}


def _name(policy: object) -> str:
    if isinstance(policy, type):
        return policy.__name__  # the engine says what is wrong with it
    plain = type(policy).__repr__ is object.__repr__
    return type(policy).__name__ if plain else repr(policy)


def _described(
    requests: list[Request],
    policies: Mapping[str, SupportsPlan],
    cost: prices.Cost,
    kv: KVCache,
    options: Mapping[str, Any],
) -> str | None:
    """Return the run as a text that a page can run again; None if that cannot be."""
    built_in: dict[type[Any], str] = {kind: name for name, kind in BUILT_IN.items()}
    price = next((name for name, kind in _PRICES.items() if type(cost) is kind), None)
    if price is None or any(type(p) not in built_in for p in policies.values()):
        return None
    numbers: Any = cost  # a dataclass, as all that are in _PRICES
    told = {
        "requests": [astuple(r) for r in requests],
        "policies": {label: [built_in[type(p)], _options(p)] for label, p in policies.items()},
        "cost": [price, {f.name: getattr(cost, f.name) for f in fields(numbers) if f.init}],
        "kv": {f.name: getattr(kv, f.name) for f in fields(kv)},
        "options": dict(options),
    }
    try:
        return json.dumps(told)
    except TypeError:  # an option that is a function, say
        return None


def _options(policy: object) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in inspect.signature(type(policy)).parameters}
