"""Price lists against the published formulas and against sums done by hand."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import servesim as ss
from servesim import cost
from servesim.cost import GPUS, MODELS, OPT_13B_A100, SLOTS, TOY, TOY_STATIC, Affine, Roofline, Work

quick = settings(max_examples=80, derandomize=True, deadline=None)
lengths = st.lists(st.integers(1, 3000), min_size=1, max_size=8)


def first_step(prompts, cost, computed=None):
    """Price one step of a real run in which all prompts are processed at once."""
    requests = [ss.Request(i, 0, p, 1) for i, p in enumerate(prompts)]
    result = ss.simulate(requests, ss.policies.Continuous(), cost=cost, record_steps=True)
    (step,) = result.step_records
    return step


def second_step(prompts, cost):
    """Price the step in which all of them decode their second token."""
    requests = [ss.Request(i, 0, p, 2) for i, p in enumerate(prompts)]
    result = ss.simulate(requests, ss.policies.Continuous(), cost=cost, record_steps=True)
    return result.step_records[1]


# --- DistServe's fit, OPT-13B on one A100


@given(prompts=lengths)
@quick
def test_prefill_is_distserve_s_formula(prompts):
    ms = 18.1 + 0.102 * sum(prompts) + 7.12e-6 * sum(p * p for p in prompts)
    assert math.isclose(first_step(prompts, OPT_13B_A100).cost_ns, 1e6 * ms, abs_tol=1.01)


@given(prompts=lengths)
@quick
def test_decode_is_distserve_s_formula(prompts):
    context = sum(p + 1 for p in prompts)
    ms = 19.9 + 6.27e-4 * context + 0.0385 * len(prompts)
    assert math.isclose(second_step(prompts, OPT_13B_A100).cost_ns, 1e6 * ms, abs_tol=0.01)


def test_distserve_s_prices_are_the_default():
    result = ss.simulate([ss.Request(0, 0, 100, 1)], ss.policies.Naive())
    assert result.end_ns == round(1e6 * (18.1 + 10.2 + 0.0712))


def test_a_step_that_does_both_pays_one_base_only():
    both = OPT_13B_A100.price_ns(Work(100, 1, 200, 100 * 100, 100))
    assert both == round(1e6 * (19.9 + 10.2 + 0.0712 + 0.0385 + 0.1254))


# --- systems A and B


@given(prompts=lengths)
@quick
def test_system_a(prompts):
    assert first_step(prompts, TOY).cost_ns == 200_000 + 40_000 * sum(prompts)
    assert second_step(prompts, TOY).cost_ns == 200_000 + 500_000 * len(prompts)


@pytest.mark.parametrize("group", [1, 3, 16])
def test_system_a_charges_its_static_mode_less(group):
    padded = Work(prefill_tokens=group * 512, longest_prefill=512)
    assert TOY_STATIC.price_ns(padded) == 200_000 + 40_000 * 512
    assert TOY_STATIC.price_ns(Work(decodes=group)) == 200_000 + 500_000 * group // 16


def test_system_b():
    assert SLOTS.price_ns(Work(prefill_tokens=8 * 1024, longest_prefill=1024)) == 12_000 * 1024
    assert SLOTS.price_ns(Work(decodes=1, context_tokens=99)) == 8_000_000
    assert SLOTS.price_ns(Work(decodes=8, context_tokens=99)) == 8_000_000


# --- affine in general


@given(
    prices=st.tuples(*[st.integers(0, 10**6)] * 6),
    work=st.builds(Work, *[st.integers(0, 10**6)] * 4),
)
@quick
def test_affine_adds_up(prices, work):
    base, step, prefill, decode, context, attention = prices
    cost = Affine(
        base_ms=base,
        decode_step_ms=step,
        prefill_us=prefill,
        decode_us=decode,
        context_ns=context,
        attention_ps=attention,
    )
    expected = base * 10**6 + prefill * 10**3 * work.prefill_tokens
    expected += attention * work.attention_pairs // 1000
    if work.decodes:
        expected += step * 10**6 + decode * 10**3 * work.decodes + context * work.context_tokens
    assert cost.price_ns(work) == expected
    assert cost.prefill_ns(work.prefill_tokens) == prefill * 10**3 * work.prefill_tokens


@given(prompt=st.integers(1, 5000), chunk=st.integers(1, 700))
@quick
def test_the_chunks_of_a_prompt_attend_to_as_much_as_the_whole(prompt, chunk):
    result = ss.simulate(
        [ss.Request(0, 0, prompt, 1)], ss.policies.Chunked(chunk=chunk), record_steps=True
    )
    work = [step.work for step in result.step_records]
    assert len(work) == math.ceil(prompt / chunk)
    assert sum(w.attention_pairs for w in work) == prompt * prompt
    assert sum(w.prefill_tokens for w in work) == prompt
    assert max(w.longest_prefill for w in work) == min(prompt, chunk)


@pytest.mark.parametrize(
    ("price", "says"),
    [
        ({"base_ms": -1}, "base_ms must be a number from 0"),
        ({"base_ms": math.nan}, "base_ms must be a number from 0"),
        ({"prefill_us": math.inf}, "prefill_us must be a number from 0"),
        ({"decode_us": "fast"}, "decode_us must be a number from 0"),
        ({"decode_us": None}, "decode_us must be a number from 0"),
        ({"base_ms": 1e300}, "base_ms must be a number from 0 to 1e.12"),
        ({"base_ms": 0.0000015}, "base_ms=1.5e-06 is finer than 1 ns.*use 2e-06 instead"),
        ({"prefill_us": 0.0125}, "prefill_us=0.0125 is finer than 1 ns.*use 0.012 instead"),
        ({"context_ns": 0.5}, "context_ns=0.5 is finer than 1 ns"),
        ({"attention_ps": 0.5}, "attention_ps=0.5 is finer than 1 ps"),
    ],
)
def test_a_price_the_clock_cannot_count_is_refused(price, says):
    with pytest.raises(ss.InputError, match=says):
        Affine(**price)


def test_a_price_may_be_as_high_as_is_said():
    assert Affine(base_ms=10**12).price_ns(Work()) == 10**18
    assert Affine(attention_ps=10**18).price_ns(Work(attention_pairs=1000)) == 10**18


def test_a_decimal_price_is_read_as_it_is_written():
    assert Affine(base_ms=0.1).price_ns(Work()) == 100_000
    assert Affine(prefill_us=0.3).price_ns(Work(prefill_tokens=10)) == 3_000
    assert Affine(base_ms=1e-06).price_ns(Work()) == 1


# --- roofline


@pytest.mark.parametrize(
    ("model", "kib", "billions"),
    [
        ("llama-3-8b", 128, 8.03),
        ("llama-3-70b", 320, 70.6),
        ("opt-13b", 800, 13),
        ("llama-2-70b", 320, 69),
    ],
)
def test_the_models_are_those_of_their_papers(model, kib, billions):
    assert MODELS[model].kv_bytes == kib * 1024
    assert MODELS[model].parameters == round(billions * 10**9)
    assert MODELS[model].weight_bytes == 2


def test_kv_bytes_are_keys_and_values_of_two_bytes():
    assert cost.kv_bytes(1, 1, 1) == 4
    assert cost.kv_bytes(3, 5, 7) == 3 * 5 * 7 * 4
    for wrong in [(0, 1, 1), (1, 0, 1), (1, 1, 0)]:
        with pytest.raises(ss.InputError, match="must be a whole number, 1 or more"):
            cost.kv_bytes(*wrong)


def test_the_gpus_are_those_of_the_data_sheets():
    assert (GPUS["h100"].flops, GPUS["h100"].bandwidth) == (989e12, 3.35e12)
    assert (GPUS["a100"].flops, GPUS["a100"].bandwidth) == (312e12, 2.039e12)


def test_a_decode_step_reads_all_weights_and_the_cache():
    # 16.06 GB of weights and 1000 tokens of 128 KiB at 3.35 TB/s.
    ns = Roofline("llama-3-8b", "h100").price_ns(Work(decodes=1, context_tokens=1000))
    assert ns == math.ceil((2 * 8.03e9 + 1000 * 131_072) / 3.35e12 * 1e9) == 4_833_156


def test_a_prefill_takes_two_operations_per_parameter_and_token():
    # 2 * 8.03e9 * 1000 at 989 TFLOP/s.
    ns = Roofline("llama-3-8b", "h100").price_ns(Work(prefill_tokens=1000))
    assert ns == math.ceil(2 * 8.03e9 * 1000 / 989e12 * 1e9) == 16_238_625
    eight = Roofline("llama-3-70b", "a100", gpus=8).price_ns(Work(prefill_tokens=2048))
    assert math.isclose(eight, 2 * 70.6e9 * 2048 / (8 * 312e12) * 1e9, abs_tol=1)


def test_long_steps_are_exact_to_the_nanosecond():
    both = Work(prefill_tokens=3 * 10**6, decodes=10**6, context_tokens=10**9)
    flop, read = 2 * 8_030_000_000 * 4 * 10**6, 2 * 8_030_000_000 + 131_072 * 10**9
    cost = Roofline("llama-3-8b", "h100")
    assert cost.compute_ns(both) == math.ceil(Fraction(flop, 989 * 10**12) * 10**9)
    assert cost.memory_ns(both) == math.ceil(Fraction(read, 3_350 * 10**9) * 10**9)


small = st.integers(0, 10**5)


@given(
    work=st.builds(Work, small, st.integers(1, 300), small, small, small),
    steps=st.integers(1, 20),
    prices=st.builds(Roofline, st.sampled_from(list(MODELS)), st.just("a100"), st.integers(1, 16)),
)
@quick
def test_steps_in_a_row_cost_what_each_costs(work, steps, prices):
    def later(j):
        return work._replace(context_tokens=work.context_tokens + j * work.decodes)

    each = [prices.price_ns(later(j)) for j in range(steps)]
    assert prices.prices_ns(work, work.decodes, steps) == each


@pytest.mark.parametrize("bandwidth", [1, 7 * 10**9, 2_039_123_456_784, 999_999_999 * 2003])
@pytest.mark.parametrize("gpus", [1, 7, 8])
def test_so_they_do_at_any_bandwidth(monkeypatch, bandwidth, gpus):
    monkeypatch.setitem(GPUS, "odd", cost.Gpu(312 * 10**12, bandwidth))
    work, prices = Work(0, 3, 5000), Roofline("opt-13b", "odd", gpus)
    each = [prices.price_ns(Work(0, 3, 5000 + 3 * j)) for j in range(5)]
    assert prices.prices_ns(work, 3, 5) == each


def test_memory_may_become_the_slower_one_on_the_way():
    prices = Roofline("llama-3-8b", "h100")
    works = [Work(0, 300, 1500 + 300 * j) for j in range(5)]
    assert prices.compute_ns(works[0]) == prices.price_ns(works[0]) < prices.price_ns(works[4])
    assert prices.prices_ns(works[0], 300, 5) == [prices.price_ns(work) for work in works]


@given(work=st.builds(Work, small, st.integers(1, 300), small, small, small))
@quick
def test_a_price_list_that_adds_up_grows_by_the_same_from_step_to_step(work):
    for prices in (OPT_13B_A100, TOY, SLOTS, Affine(context_ns=13)):
        later = work._replace(context_tokens=work.context_tokens + work.decodes)
        growth = prices.price_ns(later) - prices.price_ns(work)
        assert prices.growth_ns(work.decodes) == growth


@given(work=st.builds(Work, *[st.integers(0, 10**5)] * 3))
@quick
def test_a_roofline_is_the_slower_of_the_two(work):
    cost = Roofline()
    assert cost.price_ns(work) == max(cost.compute_ns(work), cost.memory_ns(work))
    assert (
        Roofline(gpus=2).price_ns(work)
        <= cost.price_ns(work)
        <= 2 * Roofline(gpus=2).price_ns(work)
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"model": "gpt-5"}, "unknown model 'gpt-5'; known are llama-3-8b"),
        ({"gpu": "abacus"}, "unknown gpu 'abacus'; known are h100"),
        ({"gpus": 0}, "gpus must be"),
        ({"gpus": 1.5}, "gpus must be"),
    ],
)
def test_an_unknown_model_or_gpu_is_refused(options, says):
    with pytest.raises(ss.InputError, match=says):
        Roofline(**options)


class Dearer(cost.Affine):
    """Overrides the price alone; the growth it inherits is that of another list."""

    def price_ns(self, work):
        return 2 * super().price_ns(work)


class Adding(cost.Roofline):
    def price_ns(self, work):
        return self.memory_ns(work) + self.compute_ns(work)


class SlowMemory(cost.Roofline):
    """Overrides what the price is made of."""

    def memory_ns(self, work):
        return 3 * super().memory_ns(work)


CHANGED = [Dearer(base_ms=1, context_ns=50), Adding(), SlowMemory()]


@pytest.mark.parametrize("prices", CHANGED, ids=lambda prices: type(prices).__name__)
def test_a_subclass_that_changes_a_price_is_charged_so_in_steps_taken_at_once(prices):
    three = [ss.Request(i, i * 10_000_000, 100, 30 + i) for i in range(3)]
    vllm = ss.policies.VLLM()
    at_once, stepped = (ss.simulate(three, vllm, cost=prices, skip=s) for s in (True, False))
    assert at_once.records == stepped.records


def test_a_subclass_that_changes_no_price_keeps_the_fast_way():
    class Named(cost.Roofline):
        unit = "ns"

        def told(self):
            return "a name"

        def __repr__(self):
            return "Named()"

    class Slower(cost.Affine):
        base_ms = 2.0

    assert cost.shortcut(Named(), "prices_ns") is not None
    assert cost.shortcut(Slower(), "growth_ns") is not None
    assert cost.shortcut(cost.TOY, "growth_ns") is not None
    assert cost.shortcut(Adding(), "prices_ns") is None
    assert cost.shortcut(object(), "prices_ns") is None


def test_a_price_may_also_be_changed_by_a_property():
    class Flat:
        @property
        def base(self):
            return 5

        def price_ns(self, work):
            return self.base

        def growth_ns(self, decodes):
            return 0

    class Growing(Flat):
        @property
        def base(self):
            return next(self.prices)

    assert cost.shortcut(Flat(), "growth_ns") is not None
    assert cost.shortcut(Growing(), "growth_ns") is None
