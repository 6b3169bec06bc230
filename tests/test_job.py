"""What is added up over the time that requests spend in the batch."""

import servesim as ss
from servesim.job import Job, Past
from servesim.ledger import NEVER
from servesim.request import new_progress


def job(final, claim, joined_ns):
    r = ss.Request(0, 0, 5, 5)
    job = Job(r, new_progress(r, None), 3, 20, 5, final, claim)
    job.joined_ns = joined_ns
    return job


def test_a_stay_counts_from_joining_until_now():
    past = Past()
    assert [getattr(past, name) for name in Past.__slots__] == [0] * 6
    past.add_stay(job(final=9, claim=38, joined_ns=100), now=107)
    assert (past.running_ns, past.promised_ns, past.claimed_ns) == (7, 9 * 7, 38 * 7)
    past.add_stay(job(final=2, claim=0, joined_ns=0), now=10)
    assert (past.running_ns, past.promised_ns, past.claimed_ns) == (17, 83, 38 * 7)
    assert (past.block_ns, past.token_ns, past.system_ns) == (0, 0, 0)


def test_who_has_just_arrived_has_done_nothing():
    r = ss.Request(0, 0, 5, 5)
    new = Job(r, new_progress(r, None), 3, 20, 6, 9, 38)
    assert (new.row, new.arrived_ns, new.target, new.final, new.claim) == (3, 20, 6, 9, 38)
    assert (new.best, new.stints) == (0, [])
    times = new.joined_ns, new.first_scheduled_ns, new.first_token_ns, new.last_token_ns
    assert {*times, new.after, new.gap, new.done_at} == {NEVER}


def test_a_run_adds_up_what_was_promised_and_what_was_claimed():
    """Each waits for the one before; 4 and 3 steps of 1 ms, room for 34 tokens of output."""

    class Expects(ss.policies.Orca):
        def predict(self, prompt_len, output_len):
            return 34

    requests = [ss.Request(0, 0, 5, 4), ss.Request(1, 0, 5, 3)]
    step, kv = ss.cost.Affine(base_ms=1), ss.KVCache(3, block_size=16)
    result = ss.simulate(requests, Expects(), cost=step, kv=kv)
    assert result.running_ns == (4 + 3) * 10**6
    assert result.promised_ns == ((5 + 4 - 1) * 4 + (5 + 3 - 1) * 3) * 10**6
    assert result.claimed_ns == (5 + 34 - 1) * (4 + 3) * 10**6
