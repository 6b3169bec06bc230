"""A request's fields at their limits, and the progress of one that has just arrived."""

from array import array
from dataclasses import replace

import pytest

import servesim as ss
from servesim import request
from servesim.request import (
    LATEST_NS,
    MAX_SECONDS,
    MAX_TOKENS,
    Progress,
    new_progress,
    ns_from_s,
    write_blocks,
    write_computed,
    write_preemptions,
    write_produced,
)

ONE = ss.Request(0, 0, 1, 1)
SIGNED = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    ("field", "least", "most", "says"),
    [
        ("id", *SIGNED, "a request's id must be a whole number of at most 64 bits"),
        ("arrival_ns", 0, 10**18, "request 0: arrival_ns must be a whole number of nanoseconds fr"),
        (
            "prompt_len",
            1,
            MAX_TOKENS,
            "request 0: prompt_len must be a whole number of tokens from",
        ),
        (
            "output_len",
            1,
            MAX_TOKENS,
            "request 0: output_len must be a whole number of tokens from",
        ),
        ("priority", *SIGNED, "request 0: priority must be a whole number of at most 64 bits"),
    ],
)
def test_a_number_may_be_as_small_or_as_large_as_it_says(field, least, most, says):
    for value in (least, most):
        assert getattr(replace(ONE, **{field: value}), field) == value
    for value in (least - 1, most + 1, float(least), True, str(least), None):
        with pytest.raises(ss.InputError) as caught:
            replace(ONE, **{field: value})
        assert str(caught.value).startswith(says)
        assert str(caught.value).endswith(f", not {ss.errors.brief(value)}")


@pytest.mark.parametrize("tenant", [None, 4, b"x"])
def test_a_tenant_is_a_text(tenant):
    assert ss.Request(0, 0, 1, 1, tenant="x").tenant == "x"
    with pytest.raises(ss.InputError, match="request 0: tenant must be text, not "):
        replace(ONE, tenant=tenant)


def test_priority_and_tenant_need_not_be_given():
    assert (ONE.priority, ONE.tenant) == (0, "")


def test_times_in_other_units():
    r = ss.Request(0, 2_500_000_000, 1, 1)
    assert (r.arrival_s, r.arrival_ms) == (2.5, 2500)
    assert 10**9 == request.NS_PER_S == 1000 * request.NS_PER_MS == 10**6 * request.NS_PER_US


def test_seconds_are_rounded_to_nanoseconds():
    assert [ns_from_s(s) for s in (0, 1, 0.1, 1.6e-9, 1.4e-9, MAX_SECONDS)] == [
        *(0, 10**9, 10**8, 2, 1, 10**18)
    ]
    for wrong in (-1, -1e-9, MAX_SECONDS + 1, float("nan"), float("inf"), "1", None, True):
        with pytest.raises(ss.InputError, match=r"^a time must be a number of seconds from 0 to 1"):
            ns_from_s(wrong)
    with pytest.raises(ss.InputError, match="the gap must be a number of seconds"):
        ns_from_s(-1, "the gap")


def test_the_clock_ends_where_64_bits_do():
    assert list(array("q", [LATEST_NS])) == [LATEST_NS]
    with pytest.raises(OverflowError):
        array("q", [LATEST_NS + 1])


@pytest.mark.parametrize("predicted", [None, 7])
def test_who_has_just_arrived_has_nothing_yet(predicted):
    r = ss.Request(3, 40, 10, 5, priority=-2, tenant="x")
    fresh = new_progress(r, predicted)
    assert fresh == Progress(3, 40, 10, -2, "x", predicted_output=predicted)
    assert fresh == Progress(3, 40, 10, -2, "x", 0, 0, 0, 0, predicted)
    assert repr(fresh) == repr(Progress(3, 40, 10, -2, "x", predicted_output=predicted))
    assert Progress(3, 40, 10) == new_progress(ss.Request(3, 40, 10, 5), None)
    with pytest.raises(AttributeError):
        fresh.computed = 1
    with pytest.raises(TypeError):
        hash(fresh)


def test_the_engine_can_write_down_how_far_a_request_has_come():
    r = Progress(3, 40, 10)
    write_computed(r, 11)
    write_produced(r, 2)
    write_blocks(r, 3)
    write_preemptions(r, 4)
    assert r == Progress(3, 40, 10, 0, "", 11, 2, 3, 4)
    assert (r.total, r.missing, r.decoding) == (12, 1, True)


@pytest.mark.parametrize(
    ("computed", "produced", "missing", "decoding"),
    [
        (0, 0, 10, False),
        (9, 0, 1, False),  # the last of the prompt
        (10, 1, 1, True),
        (9, 1, 2, False),
        (0, 1, 11, False),  # thrown out after its first token
        (11, 2, 1, True),
    ],
)
def test_a_request_decodes_if_it_has_a_token_and_misses_one(computed, produced, missing, decoding):
    r = Progress(3, 40, 10, computed=computed, produced=produced)
    assert (r.total, r.missing, r.decoding) == (10 + produced, missing, decoding)
