"""Writes the tables of docs/reference from the code; `--check` writes nothing and exits with 1 when a page differs.

Only the text between the two marks of a page is generated. The tables of RQ's features come from the tests that try
them. task-states.md is written by hand; its diagram and its outcomes are compared with the code. A Redis server is
started for a moment: the leading housekeeper measures it before it has metrics to show.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from prometheus_client.metrics_core import Metric

from firmq.dashboard import metrics as dashboard_metrics
from firmq.gateway import metrics as gateway_metrics
from firmq.outbox.metrics import OutboxMetrics
from firmq.outbox.relay import Counts
from firmq.outbox.rows import Backlog
from firmq.shared.cli.main import parser as cli_parser
from firmq.shared.config.settings import Settings, load, yaml_path
from firmq.shared.domain.task import TRANSITIONS, Outcome
from firmq.shared.features.history.unarchived import Unarchived
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from firmq.shared.redis.scripts import Scripts
from firmq.worker.housekeeping.main import build
from firmq.worker.metrics import Holdings, HoldingsMetrics, WorkerMetrics
from tests.features.rq.program import FEATURES
from tests.features.rq.program import PAGES as PAGES_OF_RQ
from tools.markdown import Row, joined, table
from tools.openapi_reference import endpoints, objects

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = DOCS / "reference"
BEGIN, END = "<!-- generated: python -m tools.reference -->", "<!-- end of generated -->"


def settings() -> str:
    """Returns every setting, by the section of the YAML file that holds it."""
    sections: dict[str, list[Row]] = {}
    for name, field in Settings.model_fields.items():
        section, dot, _ = yaml_path(name).partition(".")
        row = (f"`{name.upper()}`", f"`{yaml_path(name)}`", _shown(field.default), field.description)
        sections.setdefault(section if dot else "top level", []).append(row)
    head = "variable, in the YAML file, default, meaning"
    return joined(*(f"## {section}\n\n{table(head, rows)}" for section, rows in sections.items()))


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        value = ", ".join(f"{key}:{number}" for key, number in value.items())
    elif isinstance(value, tuple):
        value = ",".join(map(str, value))
    elif isinstance(value, bool):
        value = str(value).lower()
    return "" if value in ("", None) else f"`{value}`"


def metrics() -> str:
    """Returns every metric, by the part that exposes it."""
    counted, seen = gateway_metrics.Metrics(), dashboard_metrics.Metrics()
    counted.submitted("normal", "process")
    for requests in (counted.requests, seen.requests):
        requests.labels("/", "GET", "2xx").observe(0.01)
    parts = {
        "Gateway": counted.registry.collect(),
        "Worker": [*WorkerMetrics("w").collect(), *HoldingsMetrics(Holdings).collect()],
        "Outbox relay": OutboxMetrics(Counts(), lambda: Backlog(0, 0, None)).collect(),
        **_of_housekeeping(),
        "Dashboard": seen.registry.collect(),
    }
    head = "metric, kind, labels, meaning"
    return joined(*(f"## {title}\n\n{table(head, _families(found))}" for title, found in parts.items()))


def _of_housekeeping() -> dict[str, list[Metric]]:
    """Returns the metrics of every housekeeper, and those that only the leader has."""
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedRedis(data_dir=Path(folder)) as server,
        connect(server.url, timeout=5.0, name="reference") as redis,
    ):
        settings = {
            "HOUSEKEEPER_DISTRIBUTED_EXECUTION_INSTANCE_ID": "hk-1",
            "HISTORY_URL": f"sqlite:///{folder}/history.db",
            "PAYLOAD_STORE": f"file://{folder}",
        }
        parts = build(load(settings), Scripts(redis))
        Unarchived(parts.scripts).take(1)
        own = {metric.name for metric in parts.registry.collect()}
        parts.runner.run_once(next(job for job in parts.runner.jobs if job.name == "metrics"))
        found = list(parts.registry.collect())
    measured = [each for each in found if each.name not in own]
    return {"Housekeeper": [each for each in found if each.name in own], "Leading housekeeper": measured}


def _families(found: Iterable[Metric]) -> list[Row]:
    """Returns a row for each metric but those of the client library, which depend on the system."""
    rows = {}
    for metric in found:
        name = metric.name + {"counter": "_total", "info": "_info"}.get(metric.type, "")
        if not name.startswith("process_"):
            rows[name] = (f"`{name}`", metric.type, _labels(metric), metric.documentation.rstrip("."))
    return [rows[name] for name in sorted(rows)]


def _labels(metric: Metric) -> str:
    names = {label for sample in metric.samples for label in sample.labels} | set(getattr(metric, "_labelnames", ()))
    return ", ".join(f"`{name}`" for name in sorted(names - {"le", "quantile"}))


def cli() -> str:
    """Returns every command of `firmq`, and what all of them take."""
    top = cli_parser()
    return joined("## Options of every command", _arguments(top), "## Commands", *_commands(top))


def _commands(parser: argparse.ArgumentParser, about: str = "") -> Iterator[str]:
    groups = [each for each in _actions(parser) if isinstance(each.choices, Mapping)]
    if not groups:
        words = (
            _word(each) if each.required and each.nargs not in ("?", "*") else f"[{_word(each)}]"
            for each in _actions(parser)
        )
        usage = f"```\n{' '.join([parser.prog, *words])}\n```"
        yield joined(f"### {parser.prog}", f"{about[:1].upper()}{about[1:]}.", usage, _arguments(parser))
    for group in groups:
        says = {each.dest: each.help for each in getattr(group, "_choices_actions", ())}
        for name, one in dict(group.choices or {}).items():
            yield from _commands(one, says.get(name) or "")


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [each for each in getattr(parser, "_actions", ()) if each.dest != "help"]


def _word(action: argparse.Action) -> str:
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    word = " ".join([*action.option_strings[-1:], *([] if action.nargs == 0 else [str(value)])])
    return f"{word} ..." if action.nargs in ("*", "+") else word


def _arguments(parser: argparse.ArgumentParser) -> str:
    named = [each for each in _actions(parser) if each.help and not isinstance(each.choices, Mapping)]
    return table("argument, meaning", ((f"`{_word(each)}`", str(each.help).replace("%%", "%")) for each in named))


def rq_features() -> str:
    """Returns what was tried with RQ programs, by the page of RQ's documentation."""
    pages: dict[str, list[Row]] = {title: [] for title in PAGES_OF_RQ.values()}
    for name, row in FEATURES.items():
        pages[PAGES_OF_RQ[row.page]].append((f"{name} (RQ {row.since})" if row.since else name, row.verdict, row.note))
    return joined(*(f"### {title}\n\n{table('in RQ, here, note', rows)}" for title, rows in pages.items()))


def states_differ(page: str) -> bool:
    """Returns whether the page on task states shows other transitions or outcomes than the code has."""
    edges = set(re.findall(r"^ +(\w+) --> (\w+)", page, re.MULTILINE))
    outcomes = re.findall(r"^\| `(\w+)` \|", page.partition("## Outcomes of an attempt")[2], re.MULTILINE)
    wanted = {(str(old), str(new)) for old, following in TRANSITIONS.items() for new in following}
    return edges != wanted or set(outcomes) != set(map(str, Outcome))


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the pages; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.reference", description="Writes the tables of docs/reference."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a page differs")
    check = parser.parse_args(arguments).check
    stale = ["reference/task-states"] if states_differ((PAGES / "task-states.md").read_text()) else []
    makers: dict[str, Callable[[], str]] = {
        "reference/settings": settings,
        "reference/metrics": metrics,
        "reference/api": endpoints,
        "reference/api-objects": objects,
        "reference/cli": cli,
        "guides/moving-from-rq": rq_features,
    }
    for name, make in makers.items():
        path = DOCS / f"{name}.md"
        page = path.read_text()
        new = page.partition(BEGIN)[0] + f"{BEGIN}\n\n{make()}\n\n{END}" + page.partition(END)[2]
        if not check:
            path.write_text(new)
        elif new != page:
            stale.append(name)
    for name in stale:
        print(f"docs/{name}.md differs from the code: run python -m tools.reference", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
