"""Steps taken at once add up to what they do one by one."""

from hypothesis import given
from hypothesis import strategies as st

from servesim import cost
from servesim.ledger import TickLog
from servesim.stretch import Even, Uneven

small = st.integers(0, 50)
evens = st.tuples(st.integers(1, 40), small, small)


def left(prices):
    """The time that is left when each step begins, and, last, when the last one ends."""
    return [sum(prices[i:]) for i in range(len(prices) + 1)]


def check(stretch, prices, first, every):
    assert (stretch.steps, stretch.price, stretch.span) == (len(prices), prices[0], sum(prices))
    assert stretch.left_after_ends() == sum(left(prices)[1:])
    first %= len(prices)
    chosen = left(prices)[:-1][first::every]
    assert stretch.left_from(first, every) == (len(chosen), sum(chosen))
    here, there = TickLog(), TickLog()
    for log in (here, there):
        log.extend(prices[-1], 0, 1, weight=3)
    for i in (0, 1, 0):
        stretch.write_gaps(here, i, weight=3)
        for price in prices[i:]:
            there.extend(price, 0, 1, weight=3)
    assert list(here.runs()) == list(there.runs())


@given(evens, small, st.integers(1, 20))
def test_an_even_stretch_adds_up(even, first, every):
    steps, price, growth = even
    check(Even(*even), [price + j * growth for j in range(steps)], first, every)


@given(st.lists(small, min_size=1, max_size=40), small, st.integers(1, 20))
def test_an_uneven_stretch_adds_up(prices, first, every):
    check(Uneven(prices), prices, first, every)


@given(evens, st.integers(1, 3000))
def test_a_stretch_ends_with_the_step_that_fills_the_gap(even, gap):
    most, price, growth = even
    prices = [price + j * growth for j in range(most)]
    steps = next((i for i in range(1, most) if sum(prices[:i]) >= gap), most)
    assert Even.until(gap, price, growth, most).steps == steps
    assert Uneven.until(gap, prices).steps == steps


@given(
    st.builds(cost.Roofline, gpus=st.integers(1, 8), model=st.sampled_from(list(cost.MODELS))),
    st.integers(1, 500),
    st.integers(0, 20),
    st.integers(0, 3_000_000),
    st.integers(1, 30),
)
def test_a_roofline_prices_steps_in_a_row_as_it_prices_each(
    roofline, decodes, idle, context, steps
):
    work = cost.Work(0, decodes + idle, context)
    each = [work._replace(context_tokens=context + j * decodes) for j in range(steps)]
    assert roofline.prices_ns(work, decodes, steps) == [roofline.price_ns(w) for w in each]
