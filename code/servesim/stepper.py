"""Step through a run as through a program in a debugger.

``stepper(result)`` shows a run that was recorded, whatever policy made it. ``stepper(requests,
policies)`` runs the policies itself and lets the reader choose among them, and ``stepper(trace)``
does so with a loaded trace of vLLM. If all policies are built-in ones the stepper also moves on the
static page, which runs them again.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, fields
from typing import Any, TypeAlias

from . import spec
from .checks import list_of, text
from .cost import OPT_13B_A100
from .engine import SupportsPlan, simulate
from .errors import InputError, brief
from .explore import Explorer
from .figs.stepper import PRICES, draw
from .kv import KVCache
from .metrics import Result
from .policies import BUILT_IN
from .replay import setup
from .request import Request
from .steps import Steps
from .story import Story
from .svg import Figure

Setup: TypeAlias = tuple[list[Request], SupportsPlan, dict[str, Any]]
"""Requests, policy, and options of `simulate`."""


def stepper(
    run: Result | Iterable[Request] | Mapping[str, Any],
    policies: object = (),
    /,
    *,
    step: int = 0,
    caption: str = "",
    id: str = "stepper",
    **options: Any,
) -> Explorer:
    """Show a run step by step: clock, queue, batch, tokens, KV blocks, decisions and reasons.

    Parameters
    ----------
    run : Result, iterable of Request, or trace
        A run with ``record_steps=True``; the requests to run; or a trace that `replay.read`
        loaded, also several by label.
    policies : policy, text, list of these, or mapping of labels to these
        What is to run the requests. A text names a policy as on the command line:
        ``"chunked:token_budget=512"``. In a mapping a policy may stand in a dict with options
        that are its own: ``{"paged": {"policy": ..., "kv": KVCache(8)}}``. The first one is shown
        at the start.
    step : int
        The step to start with.
    caption : str
        The conclusion, in a sentence.
    id : str
        Id on the page; needed if one page shows two steppers.
    **options
        Of `servesim.simulate`: ``kv``, ``cost`` and the others.

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
    explore('show')
    """
    text(caption=caption, id=id)
    known: dict[str, Story] = {}
    if isinstance(run, Result):
        if policies or options:
            raise InputError("stepper: a result has been run; give requests to run policies")
        setups: dict[str, Setup] = {}
        known[run.policy] = Story(run)
    else:
        setups = _traces(run) if isinstance(run, Mapping) else _setups(run, policies, options)

    labels = list(setups or known)
    params: dict[str, object] = {"step": Steps(step)}
    if len(labels) > 1:
        params["run"] = labels
    fixed = {} if len(labels) > 1 else {"run": labels[0]}
    names = {"run": "Run" if isinstance(run, Mapping) else "Policy"} if len(labels) > 1 else {}
    more: dict[str, Any] = {"labels": names, "caption": caption, "id": id}

    runs = _text(setups)
    if runs is not None:
        return Explorer("servesim.figs:stepper", params, fixed={"runs": runs, **fixed}, **more)

    def show(run: str, step: int) -> Figure:
        if run not in known:
            requests, policy, own = setups[run]
            known[run] = Story(simulate(requests, policy, record_steps=True, **own))
        return draw(known[run], step)

    return Explorer(show, params, fixed=fixed, **more)


def _traces(run: Mapping[str, Any]) -> dict[str, Setup]:
    traces = {str(run.get("name", "trace")): run} if "requests" in run else run
    if not traces or not all(isinstance(trace, dict) for trace in traces.values()):
        raise InputError("stepper: a mapping holds a trace, or several by label; see replay.read")
    return {label: setup(dict(trace)) for label, trace in traces.items()}


def _setups(run: Iterable[Request], policies: Any, options: dict[str, Any]) -> dict[str, Setup]:
    """Return what is to be run, by label: what was given, or the policy with its options."""
    if isinstance(policies, Mapping):
        given = list(policies.items())
    else:
        some = policies if isinstance(policies, list | tuple) else [policies]
        given = [(p if isinstance(p, str) else _name(p), p) for p in some]
    if not given:
        raise InputError(
            "stepper: no policy is given to run the requests; write stepper(requests, MyPolicy())"
        )
    requests = list_of(Request, "run", run)
    setups = dict[str, Setup]()
    for label, policy in given:
        if label in setups:
            raise InputError(
                f"stepper: two policies are called {label!r}; give a mapping with a name for each"
            )
        own = dict(policy) if isinstance(policy, Mapping) else {"policy": policy}
        made = own.pop("policy", None)
        if isinstance(made, str):
            made = spec.policy(made)
        setups[label] = requests, made, options | own
    return setups


def _name(policy: object) -> str:
    if isinstance(policy, type):
        return policy.__name__  # the engine says what is wrong with it
    plain = type(policy).__repr__ is object.__repr__
    return type(policy).__name__ if plain else brief(policy, 500)


def _text(setups: Mapping[str, Setup]) -> str | None:
    """Describe the runs so that a page can run them again; None if that cannot be."""
    policies: dict[type[Any], str] = {kind: name for name, kind in BUILT_IN.items()}
    prices = {kind: name for name, kind in PRICES.items()}
    told = {}
    for label, (requests, policy, given) in setups.items():
        options = dict(given)
        cost = options.pop("cost", None) or OPT_13B_A100
        kv = options.pop("kv", None) or KVCache()
        if type(policy) not in policies or type(cost) not in prices:
            return None
        told[label] = {
            "requests": [astuple(r) for r in requests],
            "policy": [policies[type(policy)], _options(policy)],
            "cost": [prices[type(cost)], _fields(cost)],
            "kv": _fields(kv),
            "options": options,
        }
    try:
        return json.dumps(told) if told else None
    except TypeError:  # an option that is a function, say
        return None


def _options(policy: object) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in inspect.signature(type(policy)).parameters}


def _fields(record: Any) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in fields(record) if f.init}
