"""Workloads that are made while they are read, and what takes them."""

import pytest

import servesim as ss
from servesim import spec, workload


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("poisson", {"n": 50, "rate": 3, "seed": 4}),
        ("gamma", {"n": 50, "cv": 3}),
        ("toy", {}),
        ("slots", {"n": 7}),
    ],
)
def test_a_stream_is_the_list_again_and_again(name, options):
    listed = getattr(workload, name)(**options)
    stream = workload.Stream(name, **options)
    assert len(stream) == len(listed)
    assert list(stream) == listed
    assert list(stream) == listed


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("poison", {}, "known are poisson, gamma, toy, slots"),
        ("toy", {"rate": 1}, "unknown option 'rate'; known are n, seed"),
        ("poisson", {"rate": 0}, "rate must be a positive number"),
        ("poisson", {"n": 0}, "number of requests"),
        ("gamma", {"prompt": "x"}, "prompt length 'x'"),
    ],
)
def test_a_faulty_stream_is_refused_before_it_is_read(name, options, says):
    with pytest.raises(ss.InputError, match=says):
        workload.Stream(name, **options)


def test_a_run_takes_a_stream_or_a_generator():
    policy, requests = ss.policies.VLLM(), workload.poisson(n=80, rate=2)
    listed = ss.simulate(requests, policy)
    streamed = ss.simulate(workload.Stream("poisson", n=80, rate=2), policy)
    generated = ss.simulate(iter(requests), policy)
    assert listed.summary() == streamed.summary() == generated.summary()
    assert listed.records == streamed.records == generated.records


def test_compare_takes_a_stream_or_a_function_but_no_generator():
    both = [ss.policies.Naive(), ss.policies.Continuous()]
    requests = workload.poisson(n=20, rate=0.2)
    rows = ss.compare(requests, both).rows()
    assert ss.compare(workload.Stream("poisson", n=20, rate=0.2), both).rows() == rows
    assert ss.compare(lambda: iter(requests), both).rows() == rows
    with pytest.raises(ss.InputError, match="a generator can be read once only"):
        ss.compare(iter(requests), both)


def test_what_never_fits_is_refused_when_it_comes():
    requests = [ss.Request(0, 0, 5, 5), ss.Request(1, 0, 500, 5)]
    for workload_ in (requests, iter(requests)):
        with pytest.raises(ss.InputError, match="request 1 can never run"):
            ss.simulate(workload_, ss.policies.VLLM(), kv=ss.KVCache(3))


def test_long_workloads_on_the_command_line_are_streams():
    assert isinstance(spec.requests(f"poisson:n={spec.STREAM_FROM}"), workload.Stream)
    assert isinstance(spec.requests("poisson:n=10"), list)
