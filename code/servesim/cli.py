"""The command line: ``python -m servesim COMMAND``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

from . import __version__, replay, spec, sweep, systems
from .compare import Comparison
from .engine import Engine
from .errors import InputError, PlanError, PolicyError
from .kv import KVCache
from .metrics import SLO, SLO_PRESETS, Result
from .output import Bar, begin, check_writable, complain, say, write_whole
from .policies import BUILT_IN
from .request import Request
from .table import text_table, told
from .trace import chrome_trace
from .workload import Stream

BAD_INPUT, BAD_POLICY, INTERRUPTED = 2, 1, 130
BAR_FROM = 2_000
"""Requests from which on a run shows a progress bar."""

POLICY_HELP = (
    f"{', '.join(BUILT_IN)}, or FILE.py:Class; options follow as :key=value,... "
    "(static:batch_size=8, chunked:token_budget=512, vllm:max_num_seqs=64)"
)
WORKLOAD_HELP = (
    "toy, slots, poisson:n=200,rate=4,prompt=512,output=50-300,seed=0, gamma:...,cv=2, or a file "
    "(.csv, .jsonl, also .gz). A length is 512, 50-300 (uniform), 128|256|512 (choice) or a table: "
    "azure_conv, azure_code, mooncake"
)
COST_HELP = (
    "opt-13b-a100 (default), toy, slots, affine:base_ms=..,prefill_us=..,decode_us=..,"
    "context_ns=.., or roofline:model=llama-3-8b,gpu=h100"
)
SWEEP_HELP = """

A flag may be given several times or take several values, and braces hold choices. Quote what the
shell has its own use for: braces, and the | of a choice of lengths.

Rows come in the order of the grid. A run that fails is a row too, with a sentence in the column
`error` and no figures; the exit status is 0. With --out, finished runs are kept in
FILE.points.jsonl, and the same command goes on where it was stopped."""
SLO_HELP = f"{', '.join(SLO_PRESETS)}, or ttft_ms=..,tpot_ms=.."
EXAMPLES = """examples:
  servesim toy
  servesim slots --slots 4 --json
  servesim run --policy chunked:token_budget=512 --workload poisson:n=500,rate=2,seed=1
  servesim run --policy my_policy.py:ShortestFirst --workload toy --cost toy --kv-blocks 1800
  servesim compare --policy static --policy continuous --workload toy --cost toy
  servesim sweep --policy static continuous --workload 'poisson:rate={1,2,4}' --out rows.csv
  servesim replay small.v0.33.0.jsonl.gz
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = _Parser(
        prog="servesim",
        description="Simulate how LLM serving is scheduled, one step at a time.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"servesim {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, does: str, example: str, more: str = "") -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=does,
            description=does[0].upper() + does[1:] + "." + more,
            epilog=f"example:\n  servesim {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    toy = command("toy", "print system A's table: four modes, one workload", "toy -n 30 --seed 1")
    toy.add_argument("-n", type=int, default=60, help="requests (default 60)")
    toy.add_argument("--seed", type=int, default=7, help="of the workload (default 7)")
    toy.add_argument("--json", action="store_true", help="print the full report as JSON")
    toy.set_defaults(run=_toy)

    slots = command(
        "slots", "print system B's report: static against continuous", "slots --slots 4"
    )
    slots.add_argument("--requests", type=int, default=64, help="requests (default 64)")
    slots.add_argument("--slots", type=int, default=8, help="places in a batch (default 8)")
    slots.add_argument("--step-ms", type=float, default=8.0, help="a decode step (default 8)")
    slots.add_argument(
        "--prefill-us-per-tok", type=float, default=12.0, help="per prompt token (default 12)"
    )
    slots.add_argument("--seed", type=int, default=20261001, help="(default 20261001)")
    slots.add_argument("--json", action="store_true", help="print the full report as JSON")
    slots.set_defaults(run=_slots)

    run = command(
        "run",
        "run one policy on one workload",
        "run --policy continuous:max_running=32 --workload azure.csv --slo llama-2-70b",
    )
    run.add_argument("--policy", required=True, metavar="P", help=POLICY_HELP)
    _shared(run)
    run.add_argument("--trace-out", metavar="FILE", help="write a Chrome/Perfetto trace (JSON)")
    run.set_defaults(run=_run)

    compare = command(
        "compare",
        "run several policies on the same work at the same prices",
        "compare --policy naive --policy static:batch_size=8 --policy continuous --workload toy",
    )
    compare.add_argument("--policy", required=True, action="append", metavar="P", help=POLICY_HELP)
    _shared(compare)
    compare.set_defaults(run=_compare)

    grid = command(
        "sweep",
        "run every policy on every workload at every price, side by side; one row each",
        "sweep --policy continuous 'chunked:token_budget={256,512}' "
        "--workload 'poisson:n=200,rate={1,2,4},seed={0,1}' --cost toy opt-13b-a100 --out rows.csv",
        SWEEP_HELP,
    )
    several: dict[str, Any] = {"nargs": "+", "action": "extend"}
    grid.add_argument("--policy", required=True, metavar="P", help=POLICY_HELP, **several)
    grid.add_argument("--workload", required=True, metavar="W", help=WORKLOAD_HELP, **several)
    grid.add_argument("--cost", metavar="C", help=COST_HELP, **several)
    grid.add_argument(
        "--kv-blocks",
        metavar="N",
        type=spec.value_of,
        help="KV blocks, or none for no limit (default: none)",
        **several,
    )
    grid.add_argument("--slo", metavar="S", help=SLO_HELP, **several)
    _memory(grid)
    where = grid.add_mutually_exclusive_group()
    where.add_argument("--jobs", type=int, metavar="N", help="processes (default: one per core)")
    where.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="run on this cluster, as tcp://host:8786; its workers must see the same files",
    )
    grid.add_argument(
        "--out", metavar="FILE", help="rows as .csv or .jsonl (default: CSV on stdout)"
    )
    kept = grid.add_mutually_exclusive_group()
    kept.add_argument(
        "--resume", action="store_true", help="skip the points that were kept (the default)"
    )
    kept.add_argument("--fresh", action="store_true", help="forget the points that were kept")
    grid.set_defaults(run=_sweep)

    again = command(
        "replay",
        "run the vllm policy on a recorded trace of vLLM's scheduler and print its steps",
        "replay w05_kv_pressure.v0.33.0.json.gz",
    )
    again.add_argument(
        "file",
        metavar="FILE",
        help="trace in the format vllm-sched-trace/1 (.json, .json.gz, .jsonl.gz); prints one "
        "JSON list of steps per trace and line; the file's own steps are not read",
    )
    again.set_defaults(run=_replay)
    return top


def _shared(p: argparse.ArgumentParser) -> None:
    p.add_argument("--workload", default="poisson", metavar="W", help=WORKLOAD_HELP)
    p.add_argument("--cost", default="opt-13b-a100", metavar="C", help=COST_HELP)
    p.add_argument("--kv-blocks", type=int, metavar="N", help="KV blocks (default: no limit)")
    p.add_argument("--slo", metavar="S", help=SLO_HELP)
    p.add_argument("--json", action="store_true", help="print JSON")
    _memory(p)


def _memory(p: argparse.ArgumentParser) -> None:
    p.add_argument("--block-size", type=int, default=16, metavar="N", help="tokens (default 16)")
    p.add_argument(
        "--never-fits",
        choices=("error", "reject"),
        default="error",
        help="what to do with a request larger than the whole KV cache (default: error)",
    )


def _toy(args: argparse.Namespace) -> str:
    report = systems.toy_report(args.n, args.seed)
    return json.dumps(report) if args.json else "\n".join(text_table(systems.toy_rows(report)))


def _slots(args: argparse.Namespace) -> str:
    report = systems.slot_report(
        args.requests, args.slots, args.step_ms, args.prefill_us_per_tok, args.seed
    )
    return json.dumps(report) if args.json else "\n".join(systems.slot_lines(report))


def _run(args: argparse.Namespace) -> str:
    slo = _slo(args)
    if args.trace_out is not None:
        read = map(spec.file_in, (args.policy, args.workload))
        check_writable(args.trace_out, "--trace-out", read)
    result = _simulate(args, args.policy, spec.requests(args.workload))
    if args.trace_out is not None:
        write_whole(Path(args.trace_out), json.dumps(chrome_trace(result)))
    summary = result.summary(slo)
    return json.dumps(summary) if args.json else "\n".join(_lines(result, slo))


def _compare(args: argparse.Namespace) -> str:
    slo = _slo(args)
    requests = spec.requests(args.workload)
    results = []
    for text in args.policy:
        try:
            results.append(_simulate(args, text, requests))
        except PlanError as error:
            error.add_note(f"policy {text}")
            raise
    if args.json:
        return json.dumps([result.summary(slo) for result in results])
    return str(Comparison(results, slo))


def _sweep(args: argparse.Namespace) -> str:
    if args.out is None and (args.resume or args.fresh):
        raise InputError("--resume and --fresh need --out FILE: without it nothing is kept")
    with _cluster(args.dask) if args.dask is not None else nullcontext() as executor:
        rows = sweep.sweep(
            args.policy,
            args.workload,
            args.cost or "opt-13b-a100",
            kv_blocks=args.kv_blocks,
            slos=args.slo,
            block_size=args.block_size,
            never_fits=args.never_fits,
            out=args.out,
            fresh=args.fresh,
            executor=executor,
            jobs=args.jobs,
        )
    failed = sum(row["error"] is not None for row in rows)
    if failed:
        complain(f"servesim: {failed} of {len(rows)} runs failed; the column `error` says why")
    return f"{args.out}: {len(rows)} rows" if args.out else sweep.as_text(rows, ".csv").rstrip()


@contextmanager
def _cluster(address: str) -> Iterator[Executor]:
    """Connect to a Dask cluster."""
    try:
        from distributed import Client
        from distributed.comm import get_address_host_port
    except ImportError:
        raise InputError("--dask needs Dask: pip install -e '.[cluster]'") from None
    try:
        # Looked at first: a client that fails by its address is closed for 20 s, with a traceback.
        host, port = get_address_host_port(address)
        if not host or not 0 < port < 65536:
            raise ValueError("an address is tcp://host:port")
        client = Client(address, timeout=10, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(f"--dask {address}: no cluster answers there ({error})") from None
    with client:
        yield client.get_executor()


def _replay(args: argparse.Namespace) -> str:
    traces = replay.read(args.file)
    return "\n".join(json.dumps(replay.steps(replay.replay(trace))) for trace in traces)


def _slo(args: argparse.Namespace) -> SLO | None:
    return None if args.slo is None else spec.slo(args.slo)


def _simulate(args: argparse.Namespace, policy: str, requests: list[Request] | Stream) -> Result:
    options: dict[str, Any] = {
        "cost": spec.prices(args.cost),
        "kv": KVCache(args.kv_blocks, args.block_size),
        "never_fits": args.never_fits,
        "record_steps": getattr(args, "trace_out", None) is not None,
    }
    with Bar(len(requests), policy, "req", shown=len(requests) >= BAR_FROM) as bar:
        on_done = bar.update if bar.shown else None  # for it each record has to be made
        return Engine(requests, spec.policy(policy), on_done=on_done, **options).run()


def _lines(result: Result, slo: SLO | None) -> list[str]:
    """Return a run as lines for a person."""
    facts = [
        ("policy", result.policy + " (told the output lengths)" * result.told_output_length),
        ("requests", str(len(result.records))),
        ("finished", str(result.count("finished"))),
        ("rejected", f"{result.count('rejected')} (too large for the KV cache, or turned away)"),
        ("makespan", f"{result.makespan_s:.3f} s"),
        ("output tokens", str(result.output_tokens)),
        ("throughput", f"{told(result.throughput_tok_s, '.1f')} tok/s"),
        ("steps", str(result.steps)),
        ("preemptions", str(result.preemptions)),
        ("mean batch", f"{result.mean_running:.2f} requests"),
        (
            "KV blocks",
            f"peak {result.peak_blocks}, mean {result.mean_blocks:.1f}, "
            f"of {'no limit' if result.kv.blocks is None else result.kv.blocks}",
        ),
    ]
    if not result.count("rejected"):
        facts = [f for f in facts if f[0] != "rejected"]
    if slo is not None:
        facts += [
            ("attainment", f"{100 * result.attainment(slo):.1f} %"),
            ("goodput", f"{told(result.goodput_req_s(slo), '.3f')} req/s"),
            ("P99 within SLO", "yes" if result.p99_within(slo) else "no"),
        ]
    width = max(len(name) for name, _ in facts)
    lines = [f"{name.ljust(width)}  {value}" for name, value in facts]
    table = [["ms", "mean", "p50", "p90", "p95", "p99", "max"]]
    for name, d in (
        ("TTFT", result.ttft_ms),
        ("TPOT", result.tpot_ms),
        ("ITL", result.itl_ms),
        ("E2E", result.e2e_ms),
    ):
        table.append([name, *(told(v, ".2f") for v in d.row().values())])
    return [*lines, "", *text_table(table)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status.

    Returns
    -------
    int
        0 if all went well, 2 for bad input, 1 for a policy that fails, 130 for Ctrl-C.
    """
    try:
        begin()
        args = parser().parse_args(argv)
        say(args.run(args))
    except InputError as error:
        return _fail(str(error), BAD_INPUT)
    except PlanError as error:
        who = " ".join(getattr(error, "__notes__", ["the policy"]))
        return _fail(f"{who} broke a rule in {error}", BAD_POLICY)
    except PolicyError as error:
        return _fail("\n".join(error.lines()), BAD_POLICY)
    except MemoryError:
        return _fail("there is not enough memory for so much; ask for less", BAD_INPUT)
    except KeyboardInterrupt as stop:
        return _fail(" ".join(["interrupted", *getattr(stop, "__notes__", [])]), INTERRUPTED)
    return 0


def _fail(message: str, status: int) -> int:
    complain(f"servesim: {message}")
    return status
