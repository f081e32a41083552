"""A rolling update of the handlers under load: one gains a required parameter, one type is new, one is gone.

Old clients send what the old version takes, new clients what the new one takes. What the gateway accepted runs on a
worker that can run it; nothing becomes a dead letter, and no attempt is spent, because of the update.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing

import pytest

from firmq.shared.domain.task import TaskState
from tests.support.harness import System, free_port, wait_until

OLD: tuple[Mapping[str, object], ...] = (
    {"type": "ship", "data": {"order": 1}},
    {"type": "going", "data": {"order": 1}},
)
NEW: tuple[Mapping[str, object], ...] = (
    {"type": "ship", "data": {"order": 1, "name": "x"}},
    {"type": "coming", "data": {"order": 1}},
)


class Client:
    """Submits over HTTP until it is stopped; keeps what was accepted, and what was said to the rest."""

    def __init__(self, port: int, bodies: Iterable[Mapping[str, object]]) -> None:
        self.port = port
        self.bodies = [json.dumps(each) for each in bodies]
        self.ids: list[str] = []
        self.answers: Counter[int] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._submit)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _submit(self) -> None:
        while not self._stop.wait(0.02):
            for body in self.bodies:
                with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
                    connection.request("POST", "/tasks", body, {"Content-Type": "application/json"})
                    answer = connection.getresponse()
                    said = json.loads(answer.read())
                self.answers[answer.status] += 1
                if answer.status == 202:
                    self.ids.append(said["task_id"])

    def has_more(self, count: int = 20) -> None:
        """Waits until so many more are accepted."""
        enough = self.answers[202] + count
        wait_until(lambda: self.answers[202] >= enough, f"{count} more are accepted: {self.answers}")


@pytest.mark.timeout(300)
def test_no_task_fails_because_the_handlers_are_updated(system: System) -> None:
    port = free_port()
    system.start("gateway", GATEWAY_PORT=str(port), GATEWAY_PROCESSES="1")
    system.start_housekeeper(HOUSEKEEPER_TTL_INTERVAL="0.5")
    before = [system.start_worker(TASK_MODULES="tests.support.versions.before", WORKER_EXECUTORS="1") for _ in range(2)]
    wait_until(lambda: _answers(port), "the gateway serves")
    old = Client(port, OLD)
    try:
        old.has_more()
        system.start_worker(TASK_MODULES="tests.support.versions.after", WORKER_EXECUTORS="1")
        new = Client(port, NEW)
        try:
            new.has_more()
            old.has_more()
            before[0].terminate()
            system.start_worker(TASK_MODULES="tests.support.versions.after", WORKER_EXECUTORS="1")
            new.has_more()
            old.has_more()
            # The clients are replaced before the last worker that serves the old ones is, and their tasks are done.
            old.stop()
            wait_until(
                lambda: all(system.records.state(each).ended for each in old.ids), "what the old clients sent is done"
            )
            before[1].terminate()
            new.has_more()
        finally:
            new.stop()
    finally:
        old.stop()
    assert old.answers.keys() == {202}
    assert new.answers.keys() == {202}
    system.all_ended()
    ended = [system.records.get(each) for each in old.ids + new.ids]
    assert Counter(each.summary.state for each in ended) == {TaskState.COMPLETED: len(ended)}
    assert {(each.summary.attempt, each.summary.failures, len(each.attempts)) for each in ended} == {(1, 0, 1)}
    assert {each.result[0] for each in ended} == {"before", "going", "after", "coming"}
    assert [process.wait(60) for process in before] == [0, 0]


def _answers(port: int) -> bool:
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", "/health/ready")
            return connection.getresponse().status == 200
    except OSError:
        return False
