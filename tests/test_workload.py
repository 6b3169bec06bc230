"""Where requests come from: generators with a seed, and files."""

import gzip
import json
import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import servesim as ss
from servesim.workload import LENGTH_TABLES, PERCENTS, burstiness, load, sampler

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"
needs_traces = pytest.mark.skipif(
    not (SHARED / "traces").is_dir(), reason="the traces lie beside the repository, not in it"
)
HEADER = "arrival_s,prompt_len,output_len\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def triples(requests):
    return [(r.arrival_ns, r.prompt_len, r.output_len) for r in requests]


# --- generators


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        (
            "poisson",
            {"n": 3},
            [(465151778, 512, 244), (1017525487, 512, 60), (1092436065, 512, 180)],
        ),
        (
            "gamma",
            {"n": 3, "cv": 2, "prompt": [10, 20], "seed": 1},
            [(463423, 10, 115), (738322, 20, 216), (30265170, 20, 57)],
        ),
        (
            "poisson",
            {"n": 3, "prompt": "azure_conv", "output": "azure_code", "seed": 5},
            [(243812342, 1179, 29), (957588861, 1177, 71), (964947410, 995, 85)],
        ),
        ("toy", {"n": 2}, [(9782871, 256, 151), (36095262, 128, 260)]),
        ("slots", {"n": 3}, [(0, 256, 96), (5598582, 1024, 24), (13590307, 256, 24)]),
    ],
)
def test_a_seed_always_gives_the_same_workload(name, options, expected):
    assert triples(getattr(ss.workload, name)(**options)) == expected


@given(seed=st.integers(-(10**9), 10**9), n=st.integers(1, 50))
@settings(max_examples=30, derandomize=True, deadline=None)
def test_arrivals_are_summed_in_seconds_and_rounded_once(seed, n):
    rng = random.Random(seed)
    clock, expected = 0.0, []
    for _ in range(n):
        clock += rng.expovariate(3.0)
        # An exact sum of the float: nothing is rounded on the way.
        expected.append((round(Fraction(clock) * 10**9), 100, rng.randint(5, 9)))
    ours = triples(ss.workload.poisson(n, rate=3.0, prompt=100, output=(5, 9), seed=seed))
    for (a, *lengths), (b, *others) in zip(ours, expected, strict=True):
        assert abs(a - b) <= 1  # the product with 1e9 is itself a float
        assert lengths == others


def test_a_longer_workload_begins_like_a_shorter_one():
    assert ss.workload.gamma(50)[:20] == ss.workload.gamma(20)


def test_ids_count_from_zero_and_arrivals_never_fall():
    for make in (ss.workload.poisson, ss.workload.gamma, ss.workload.toy, ss.workload.slots):
        requests = make()
        assert [r.id for r in requests] == list(range(len(requests)))
        assert sorted(requests, key=lambda r: r.arrival_ns) == requests


@pytest.mark.parametrize("cv", [0.3, 1, 3])
def test_gamma_arrivals_have_the_rate_and_the_burstiness_asked_for(cv):
    requests = ss.workload.gamma(20_000, rate=5.0, cv=cv, prompt=1, output=1, seed=2)
    gaps = np.diff([r.arrival_ns for r in requests]) / 1e9
    assert gaps.mean() == pytest.approx(0.2, rel=0.03 * max(1, cv))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)
    assert burstiness(requests) == pytest.approx(gaps.std() / gaps.mean(), rel=1e-6)


def test_gamma_with_cv_one_is_exponential():
    gamma = ss.workload.gamma(20_000, rate=5.0, cv=1, prompt=1, output=1)
    gaps = np.sort(np.diff([r.arrival_ns for r in gamma]) / 1e9)
    for p in (10, 50, 90, 99):
        assert np.percentile(gaps, p) == pytest.approx(-0.2 * np.log(1 - p / 100), rel=0.06)


def test_burstiness_of_too_few_arrivals_is_zero():
    assert burstiness(ss.workload.poisson(1)) == 0
    assert burstiness([ss.Request(i, 5, 1, 1) for i in range(3)]) == 0


# --- lengths


@pytest.mark.parametrize("table", LENGTH_TABLES)
@pytest.mark.parametrize("side", ["prompt", "output"])
def test_a_table_s_percentiles_come_out_of_its_samples(table, side):
    draw, rng = sampler(table, side), random.Random(3)
    drawn = np.array([draw(rng) for _ in range(20_000)])
    points = LENGTH_TABLES[table][side]
    assert points[0] <= drawn.min()
    assert drawn.max() <= points[-1]
    for p in [p for p in PERCENTS if 1 <= p <= 99]:
        # Within what one percent more or less would give: sampling noise is far below.
        low, high = np.interp([p - 1, p + 1], PERCENTS, points)
        assert low - 1 <= np.percentile(drawn, p) <= high + 1


@pytest.mark.parametrize("table", LENGTH_TABLES)
@pytest.mark.parametrize("side", ["prompt", "output"])
@pytest.mark.parametrize(("draw", "point"), [(0.0, 0), (0.5, 12), (1 - 2**-53, -1)])
def test_a_table_is_read_from_end_to_end(table, side, draw, point):
    class Fixed(random.Random):
        def random(self):
            return draw

    assert sampler(table, side)(Fixed()) == LENGTH_TABLES[table][side][point]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the reference lies beside the repository")
def test_the_tables_are_those_of_the_reference():
    path = SHARED / "reference" / "azure_length_percentiles.json"
    reference = json.loads(path.read_text(encoding="utf-8"))
    for name, table in reference.items():
        assert tuple(table["percentiles"]) == PERCENTS
        assert tuple(table["prompt_tokens"]) == LENGTH_TABLES[name]["prompt"]
        assert tuple(table["output_tokens"]) == LENGTH_TABLES[name]["output"]


@pytest.mark.parametrize(
    ("lengths", "possible"),
    [
        (7, {7}),
        ("7", {7}),
        ((3, 6), {3, 4, 5, 6}),
        ("3-6", {3, 4, 5, 6}),
        ([2, 9], {2, 9}),
        ("2|9", {2, 9}),
        ("5-5", {5}),
        ([4], {4}),
    ],
)
def test_lengths(lengths, possible):
    draw, rng = sampler(lengths, "prompt"), random.Random(0)
    assert {draw(rng) for _ in range(200)} == possible


@pytest.mark.parametrize(
    "lengths",
    [
        *(0, -5, 1.5, True, None, [], (), (5, 3), (1, 2, 3), (0, 3), [3, 0], [1.5], [True], {}),
        *("", "x", "3-", "-3", "3-2-1", "5-3", "0-4", "1|", "1|x", "0|3", "azure", "1.5"),
    ],
    ids=repr,
)
def test_impossible_lengths_are_refused(lengths):
    with pytest.raises(ss.InputError, match="output length"):
        ss.workload.poisson(output=lengths)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n": 0}, "number of requests"),
        ({"n": 2.0}, "number of requests"),
        ({"n": 10**12}, "number of requests"),
        ({"rate": 0}, "rate must be a positive"),
        ({"rate": float("nan")}, "rate must be a positive"),
        ({"rate": float("inf")}, "rate must be a positive"),
        ({"rate": "4"}, "rate must be a positive"),
        ({"rate": 1e-300}, "is the rate too small"),
        ({"cv": 0}, "cv must be"),
        ({"cv": 1e-200}, "cv must be a number from 0.001 to 1000"),
        ({"cv": 1e200}, "cv must be a number from 0.001 to 1000"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"seed": "7"}, "seed must be a whole number"),
    ],
)
def test_impossible_options_are_refused(options, says):
    with pytest.raises(ss.InputError, match=says):
        ss.workload.gamma(**options)


@pytest.mark.parametrize(
    "options",
    [{"cv": 0.001}, {"cv": 1000}, {"seed": 2**63 - 1}, {"seed": -(2**63)}],
    ids=repr,
)
def test_options_may_be_as_extreme_as_is_said(options):
    assert len(ss.workload.gamma(3, **options)) == 3


@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1])
def test_a_seed_has_64_bits(seed):
    with pytest.raises(ss.InputError, match="seed must be"):
        ss.workload.toy(3, seed=seed)


def test_a_stream_may_be_as_long_as_is_said():
    assert len(ss.workload.Stream("toy", n=100_000_000)) == 100_000_000
    with pytest.raises(ss.InputError, match="number of requests"):
        ss.workload.Stream("toy", n=100_000_001)


@pytest.mark.parametrize("workloads", [[], {3: []}, {"a": [], 3: []}], ids=repr)
def test_tenants_have_names(workloads):
    with pytest.raises(ss.InputError, match="merge: workloads must be a dict of requests by"):
        ss.workload.merge(workloads)


# --- files


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a file and returns its path."""

    def write(name, text):
        data = text if isinstance(text, bytes) else text.encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


@pytest.mark.parametrize("name", ["w.csv", "w.csv.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "BOM"])
def test_a_plain_csv(write, name, end, mark):
    text = f"{mark}{HEADER}0.5,10,3\n\n1,20,4\n1.0000000005,30,5\n".replace("\n", end)
    assert triples(load(write(name, text))) == [
        (500_000_000, 10, 3),
        (1_000_000_000, 20, 4),
        (1_000_000_000, 30, 5),  # half a nanosecond goes to the even one
    ]


def test_columns_may_come_in_any_order_and_with_priority_and_tenant(write):
    path = write(
        "w.csv", 'tenant,output_len,priority,prompt_len,arrival_s\n"a,b",3,-2,10,0\n,3,,1,1\n'
    )
    first, second = load(path)
    assert (first.tenant, first.output_len, first.priority, first.prompt_len) == ("a,b", 3, -2, 10)
    assert (second.tenant, second.priority) == ("", 0)


def test_a_csv_without_a_last_line_end(write):
    assert load(write("w.csv", HEADER + "0,1,2")) == [ss.Request(0, 0, 1, 2, 0, "")]


@pytest.mark.parametrize(
    ("arrival", "ns"),
    [
        ("0", 0),
        ("1e-9", 1),
        ("0.0000000014", 1),
        ("123456789.123456789", 123456789123456789),
        ("1e-999999999", 0),  # as an exact fraction it would not fit the memory
        ("1e3", 1_000_000_000_000),
        ("1000000000", 10**18),
    ],
)
def test_arrivals_are_read_exactly(write, arrival, ns):
    assert load(write("w.csv", f"{HEADER}{arrival},1,1\n"))[0].arrival_ns == ns


def test_azure_timestamps_keep_their_seventh_digit(write):
    text = AZURE + (
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:46.6805901,1,1\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
        "2023-11-16 18:15:51,1,1\n"
        "2023-11-17 00:00:00.5,2,2\n"
        "2023-11-17 00:00:00.5000000019,2,2\n"
    )
    assert triples(load(write("azure.csv", text))) == [
        (0, 374, 44),
        (100, 1, 1),
        (4_314_579_000, 396, 109),
        (4_319_410_000, 1, 1),
        (20_653_819_410_000, 2, 2),
        (20_653_819_410_001, 2, 2),
    ]


@pytest.mark.parametrize("name", ["m.jsonl", "m.jsonl.gz"])
def test_mooncake(write, name):
    rows = [
        {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]},
        {"timestamp": 27.5, "input_length": 7, "output_length": 1},
    ]
    text = "\r\n".join(map(json.dumps, rows))
    assert triples(load(write(name, text))) == [(0, 6758, 500), (27_500_000, 7, 1)]


@needs_traces
def test_mooncake_s_table_is_that_of_its_trace():
    requests = load(SHARED / "traces" / "mooncake_synthetic_trace.jsonl.gz")
    for side in ("prompt", "output"):
        lengths = [getattr(r, f"{side}_len") for r in requests]
        points = [round(x) for x in np.percentile(lengths, PERCENTS)]
        assert points == list(LENGTH_TABLES["mooncake"][side])


@needs_traces
@pytest.mark.parametrize(
    ("name", "rows", "first", "second"),
    [
        (
            "AzureLLMInferenceTrace_conv.csv",
            19_366,
            (0, 374, 44),
            (4_314_579_000, 396, 109),
        ),
        (
            "AzureLLMInferenceTrace_code.csv",
            8_819,
            (0, 4808, 10),
            (52_000_000, 3180, 8),
        ),
        (
            "mooncake_synthetic_trace.jsonl.gz",
            3_993,
            (0, 40160, 6),
            (0, 36640, 4),
        ),
    ],
)
def test_the_published_traces(name, rows, first, second):
    requests = load(SHARED / "traces" / name)
    assert len(requests) == rows
    assert triples(requests[:2]) == [first, second]
    assert len({r.id for r in requests}) == rows
    assert sorted(requests, key=lambda r: r.arrival_ns) == requests


# --- files with something wrong

GOOD = "1,2,3\n"


def mooncake(timestamp, prompt):
    return f'{{"timestamp": {timestamp}, "input_length": {prompt}, "output_length": 3}}\n'


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("w.csv", "", "line 1: the header must name the columns arrival_s"),
        ("w.csv", "\n\n", "line 1: the header must name"),
        ("w.csv", "a,b,c\n1,2,3\n", "line 1: the header must name"),
        ("w.csv", "arrival_s,prompt_len\n1,2\n", "line 1: the header must name"),
        ("w.csv", "TIMESTAMP,ContextTokens\n1,2\n", "line 1: the header must name"),
        ("w.csv", "arrival_s,prompt_len,output_len,x\n", "line 1: unknown column 'x'"),
        ("w.csv", "arrival_s,prompt_len,output_len,arrival_s\n", "'arrival_s' is there twice"),
        ("w.csv", HEADER, "the workload is empty"),
        ("w.csv", HEADER + GOOD + "1,2\n", "line 3: 2 cells, the header has 3"),
        ("w.csv", HEADER + GOOD + "1,2,3,4\n", "line 3: 4 cells, the header has 3"),
        ("w.csv", HEADER + GOOD + '1,"2,3\n', "line 3: unexpected end of data"),
        ("w.csv", HEADER + "\n\n1,0,3\n", "line 4: prompt_len must be .* from 1"),
        ("w.csv", HEADER + GOOD + "1,-2,3\n", "line 3: prompt_len must be"),
        ("w.csv", HEADER + GOOD + "1,2,0\n", "line 3: output_len must be"),
        ("w.csv", HEADER + GOOD + "1,2,1e3\n", "line 3: output_len '1e3' is not a whole number"),
        ("w.csv", HEADER + GOOD + "1,2.5,3\n", "line 3: prompt_len '2.5' is not a whole number"),
        ("w.csv", HEADER + GOOD + "1,,3\n", "line 3: prompt_len '' is not a whole number"),
        ("w.csv", HEADER + GOOD + "1,2,9999999999\n", "line 3: output_len must be .* to 100000000"),
        ("w.csv", HEADER + "nan,2,3\n", "line 2: arrival 'nan' is not a number of seconds"),
        ("w.csv", HEADER + "inf,2,3\n", "line 2: arrival 'inf' is not a number of seconds"),
        ("w.csv", HEADER + "1e999,2,3\n", "line 2: arrival '1e999' is not a number of seconds"),
        ("w.csv", HEADER + "1e300,2,3\n", "line 2: arrival '1e300' is not .* to 1000000000"),
        ("w.csv", HEADER + "-1,2,3\n", "line 2: arrival '-1' is not a number of seconds"),
        ("w.csv", HEADER + "soon,2,3\n", "line 2: arrival 'soon' is not a number of seconds"),
        ("w.csv", HEADER + GOOD + "0.5,2,3\n", "line 3: it arrives before the line above; sort"),
        (
            "w.csv",
            HEADER[:-1] + ",priority\n1,2,3,high\n",
            "line 2: priority 'high' is not a whole",
        ),
        ("a.csv", AZURE + "2023-13-16 18:15:46.1,1,1\n", "line 2: timestamp .* is not like 2023"),
        ("a.csv", AZURE + "2023-11-16 18:15:46.1x,1,1\n", "line 2: timestamp .* is not like 2023"),
        ("a.csv", AZURE + "2023-11-16 18:15:46.1_0,1,1\n", "line 2: timestamp .* is not like"),
        ("a.csv", AZURE + "2023-11-16 18:15:46.\u0663,1,1\n", "line 2: timestamp .* is not like"),
        ("a.csv", AZURE + "12.5,1,1\n", "line 2: timestamp '12.5' is not like 2023"),
        (
            "a.csv",
            AZURE + "2023-11-16 18:15:46.1,1,1\n2023-11-16 18:15:46.0,1,1\n",
            "line 3: it arrives before the line above",
        ),
        ("m.jsonl", "", "the workload is empty"),
        ("m.jsonl", "{\n", "line 1: Expecting property name"),
        ("m.jsonl", "[1]\n", "line 1: a line must be a JSON object"),
        ("m.jsonl", '{"timestamp": 1, "input_length": 2}\n', "line 1: 'output_length' is missing"),
        ("m.jsonl", "[" * 100_000 + "\n", "line 1: "),
        ("m.jsonl", '{"a": ' + "9" * 5000 + "}\n", "line 1: "),
        ("m.jsonl", mooncake("NaN", 2), "line 1: arrival 'nan'"),
        ("m.jsonl", mooncake("1e999", 2), "line 1: arrival 'inf'"),
        ("m.jsonl", mooncake(-1, 2), "line 1: arrival '-1'"),
        ("m.jsonl", mooncake('"1"', 2), "line 1: timestamp '1' is not a number of ms"),
        ("m.jsonl", mooncake("true", 2), "line 1: timestamp True is not a number of ms"),
        ("m.jsonl", mooncake("null", 2), "line 1: timestamp None is not a number of ms"),
        ("m.jsonl", mooncake(1, 0), "line 1: prompt_len must be"),
        ("m.jsonl", mooncake(1, 2.0), "line 1: prompt_len must be"),
        ("m.jsonl", mooncake(1, '"2"'), "line 1: prompt_len must be"),
        ("m.jsonl", mooncake(1, "null"), "line 1: prompt_len must be"),
        ("m.jsonl", mooncake(2, 1) + mooncake(1, 1), "line 2: it arrives before the line above"),
        ("w.csv", HEADER.encode() + b"1,2,\xff\n", "not UTF-8 text"),
        ("w.csv.gz", HEADER.encode() + b"1,2,\xff\n", "not UTF-8 text"),
        ("w.txt", "1,2,3\n", "ends in .csv, .jsonl"),
    ],
)
def test_a_faulty_file_is_named_with_its_line(write, name, text, says):
    path = write(name, text)
    with pytest.raises(ss.InputError, match=says) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_file_cut_short_or_not_compressed_at_all(tmp_path):
    path = tmp_path / "w.csv.gz"
    whole = gzip.compress((HEADER + "1,2,3\n" * 5_000).encode())
    for data, says in (
        (whole[: len(whole) // 2], r"after line \d+: Compressed file ended"),
        (whole[:-1], r"after line 5001: Compressed file ended"),
        (whole[:-8] + b"\0" * 8, r"after line 5001: CRC check failed"),
        (b"plain", r"after line 0: Not a gzipped file"),
        (whole[:12] + b"\xff" * 50, r"after line 0: "),
        (b"", "line 1: the header must name"),
    ):
        path.write_bytes(data)
        with pytest.raises(ss.InputError, match=says):
            load(path)


@pytest.mark.parametrize("name", ["none.csv", "none.csv.gz", "none.jsonl"])
def test_a_missing_file_or_a_folder(tmp_path, name):
    with pytest.raises(ss.InputError, match=f"{name}: No such file"):
        load(tmp_path / name)
    (tmp_path / name).mkdir()
    with pytest.raises(ss.InputError, match=f"{name}: Is a directory"):
        load(tmp_path / name)
