"""A real Prometheus, and questions to it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.monitoring.promtool import FOLDER, program
from tests.support.harness import ROOT, free_port, wait_until

Series = dict[tuple[tuple[str, str], ...], list[tuple[float, float]]]
"""Samples (time, value) by labels."""


class Prometheus:
    """Scrapes every second and evaluates our rules."""

    def __init__(self, address: str) -> None:
        self.api = httpx.Client(base_url=f"{address}/api/v1", timeout=20)

    def ask(self, path: str, **parameters: Any) -> Any:
        answer = self.api.get(path, params=parameters)
        body = answer.json()
        assert body["status"] == "success", (parameters, body)
        return body["data"]

    def series(self, query: str, at: float | None = None) -> Series:
        """What a query gives: one sample for each series, or all of a range."""
        data = self.ask("query", query=query, **({} if at is None else {"time": at}))
        if data["resultType"] == "scalar":
            return {(): [_sample(data["result"])]}
        return {_labels(each["metric"]): [_sample(pair) for pair in _pairs(each)] for each in data["result"]}

    def value(self, query: str, at: float | None = None) -> float | None:
        """The one figure that a query gives, or None."""
        found = self.series(query, at)
        assert len(found) <= 1, (query, found)
        return next(iter(found.values()))[0][1] if found else None

    def over_time(self, query: str, since: float) -> Series:
        """What a query gave from a moment on, twice a second."""
        data = self.ask("query_range", query=query, start=since, end=time.time(), step=0.5)
        return {_labels(each["metric"]): [_sample(pair) for pair in _pairs(each)] for each in data["result"]}

    def counted(self, counter: str) -> float:
        """By how much a counter grew over all processes, each from its start: what Prometheus was told, exactly."""
        return sum(_growth([value for _, value in samples]) for samples in self.series(f"{counter}[1h]").values())

    def has_scraped_all_since(self, moment: float) -> bool:
        """Whether every target was read, from beginning to end, after a moment."""
        targets = self.ask("targets", state="active")["activeTargets"]
        begun = self.value("min(timestamp(up))")
        return bool(targets) and begun is not None and begun > moment

    def wait_for_scrapes(self) -> None:
        """Until everything that has been counted by now is known here."""
        now = time.time() + 0.1
        wait_until(lambda: self.has_scraped_all_since(now), "every part was scraped", 20)


@contextmanager
def running_prometheus(folder: Path, jobs: Mapping[str, Sequence[int]]) -> Iterator[Prometheus]:
    """One that scrapes these ports of this machine, by the name of their part, with the parameters that we ship."""
    shipped = yaml.safe_load((ROOT / "prometheus.yml").read_text())["scrape_configs"]
    asked = {job["job_name"]: job.get("params", {}) for job in shipped}
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FOLDER / "recording.yml"), str(FOLDER / "alerts.yml")],
        "scrape_configs": [
            {
                "job_name": name,
                "params": asked[name],
                "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}],
            }
            for name, ports in jobs.items()
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address={address}",
                "--log.level=warn",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: _ready(process, address, folder), "Prometheus is ready", 30)
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.wait(20)


def _ready(process: subprocess.Popen[bytes], address: str, folder: Path) -> bool:
    assert process.poll() is None, (folder / "prometheus.log").read_text()
    try:
        return httpx.get(f"http://{address}/-/ready", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def _growth(values: Sequence[float]) -> float:
    """From zero on; a fall is a new process that began at zero."""
    before = [0.0, *values]
    return sum(now - then if now >= then else now for then, now in zip(before, values, strict=False))


def _labels(metric: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(metric.items()))


def _pairs(series: Mapping[str, Any]) -> Sequence[Any]:
    found: Sequence[Any] = series["values"] if "values" in series else [series["value"]]
    return found


def _sample(pair: Sequence[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])
