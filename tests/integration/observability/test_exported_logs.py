"""Log lines also go to a collector, with their fields and in their traces, and cost nothing when it is away."""

from __future__ import annotations

import signal
import time

import pytest

from firmq.shared.config.settings import load
from firmq.shared.domain.task import TaskState
from firmq.shared.errors import SettingsError
from tests.support.collector import Collector, LogLine, mute
from tests.support.figures import judge_since
from tests.support.harness import System, free_port, wait_until

TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_lines_of_handlers_and_of_parts_arrive_in_their_trace(system: System) -> None:
    collector = Collector()
    try:
        system.start_worker(LOG_EXPORT="otlp", MAX_RETRIES="0", **collector.environment)
        meta = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        talking = system.submit("talk", "3", meta=meta)
        failing = system.submit("stubborn", '"key"', meta=meta)
        system.ended(talking)
        system.ended(failing)

        def about(task: str) -> list[LogLine]:
            return [line for line in collector.lines if line.about.get("task_id") == task]

        wait_until(
            lambda: about(talking) and any(line.text.startswith("dead letter") for line in about(failing)),
            "lines of both arrived",
        )
        assert {line.trace for line in (*about(talking), *about(failing))} == {TRACE}
        assert {line.service for line in collector.lines} == {"firmq-worker"}
        [dead] = [line for line in about(failing) if line.text.startswith("dead letter")]
        assert (dead.level, dead.about["error_type"]) == ("ERROR", "KeyError")
        assert f'"task_id": "{failing}"' in system.logs()
    finally:
        collector.stop()


def test_a_collector_that_is_away_costs_lines_and_nothing_else(system: System) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    system.start_worker(LOG_EXPORT="otlp", MAX_RETRIES="0", OTEL_EXPORTER_OTLP_ENDPOINT=away)
    system.ended(system.submit("talk", "3"))
    wait_until(lambda: "exported log lines are lost" in system.logs(), "the log says so")
    done = system.submit("noop")
    system.ended(done)
    assert system.records.state(done) is TaskState.COMPLETED


@pytest.mark.parametrize("part", ["worker", "housekeeper"])
def test_a_collector_that_never_answers_holds_up_no_shutdown(system: System, part: str) -> None:
    with mute() as address:
        worker = system.start_worker(LOG_EXPORT="otlp", OTEL_EXPORTER_OTLP_ENDPOINT=address)
        housekeeper = system.start_housekeeper(LOG_EXPORT="otlp", OTEL_EXPORTER_OTLP_ENDPOINT=address)
        meta = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        system.ended(system.submit("talk", "3", meta=meta))
        wait_until(lambda: "unlock, timeout" in system.logs(), "the housekeeper runs")
        process = {"worker": worker, "housekeeper": housekeeper}[part]
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        # 1.5 s for spans, as long for log lines, and what a part needs itself; not OTLP's 10 s.
        judge_since(f"end of a {part} whose collector never answers", began, 9)


def test_export_needs_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.setenv("LOG_EXPORT", "otlp")
    with pytest.raises(SettingsError, match="LOG_EXPORT=otlp needs a collector"):
        load()
