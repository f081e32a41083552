"""Redis, gateway, worker and housekeeper for the tests of a user: started once, emptied after each test."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

from firmq.shared.child_processes import describe_exit, dies_with_us
from firmq.shared.client import Client, Conflict
from firmq.shared.config.other_names import DECKARD
from firmq.shared.domain.task import TaskState
from firmq.shared.errors import FirmqError
from firmq.shared.http.bind import LOOPBACK, free_port
from firmq.shared.http.healthcheck import status
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect

_PARTS = {"worker": "WORKER_METRICS_PORT", "housekeeper": "HOUSEKEEPER_METRICS_PORT", "gateway": "GATEWAY_PORT"}
"""With the settings of their ports. A gateway is ready once a worker has published its types."""
_QUICK = {
    "GATEWAY_PROCESSES": "1",
    "WORKER_EXECUTORS": "2",
    "INITIAL_RETRY_DELAY": "0.1",
    "DRAIN_GRACE": "1",
    "HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED": "false",  # the end of a test deletes the data in Redis, locks too
}
"""Settings for tests; the environment overrides them."""
_LEFT_OUT = ("REDIS_", "API_KEYS", "HISTORY_", "ALERT_")
"""Settings of the environment that do not apply: the system has stores and a gateway of its own, without alerts."""
_READY_WITHIN = 60.0
_ENDED_WITHIN = 30.0
_STOPPED_WITHIN = 10.0
_LINES_SHOWN = 20


class SystemForTests:
    """A running system with the handlers of `modules`, comma-separated; its files are in `folder`.

    Start it from the main thread, as EmbeddedRedis. Raises FirmqError when a part does not become ready.
    """

    def __init__(self, folder: Path, modules: str, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.environment = environment or {}
        self.ports = {part: free_port() for part in _PARTS}
        self.url = f"http://{LOOPBACK}:{self.ports['gateway']}"
        self._modules = modules
        self._redis = EmbeddedRedis(data_dir=folder / "redis")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()
        self._first_keys: set[bytes] = set()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._redis)
            stack.callback(self._stop)
            for part in _PARTS:
                self._processes[part] = self._start(part)
            for part in _PARTS:
                _wait(partial(self._is_ready, part), _READY_WITHIN, f"{part} is not ready")
            self._first_keys = self._keys()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def reset(self, client: Client) -> None:
        """Cancels all tasks that have not ended, and deletes data in Redis that the start did not put there."""
        for state in TaskState:
            if not state.ended:
                for task in client.tasks(status=state):
                    with suppress(Conflict):
                        client.cancel(task.task_id)
        _wait(lambda: not any(client.tasks(status="running")), _ENDED_WITHIN, "a cancelled task still runs")
        with connect(self._redis.url) as redis:
            for key in self._keys() - self._first_keys:
                redis.unlink(key)

    def _keys(self) -> set[bytes]:
        with connect(self._redis.url) as redis:
            return set(redis.scan_iter(count=1000))

    def _start(self, part: str) -> subprocess.Popen[bytes]:
        given = {
            name: value for name, value in os.environ.items() if not name.removeprefix(DECKARD).startswith(_LEFT_OUT)
        }
        environment = {
            **_QUICK,
            **given,
            **{variable: str(self.ports[part]) for part, variable in _PARTS.items()},
            "REDIS_URL": self._redis.url,
            "BIND_HOST": LOOPBACK,
            **self.environment,
            "TASK_MODULES": self._modules,
            "FIRMQ_URL": self.url,
            "PYTHONPATH": os.pathsep.join(
                path or os.getcwd() for path in sys.path
            ),  # handlers are found as in the tests
        }
        with self._log(part).open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "firmq", part],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # or Ctrl-C would stop it before the test has ended
                preexec_fn=dies_with_us(),
            )

    def _is_ready(self, part: str) -> bool:
        if (exit_status := self._processes[part].poll()) is not None:
            lines = self._log(part).read_text(errors="replace").splitlines()[-_LINES_SHOWN:]
            head = f"{part} {describe_exit(exit_status)} before it was ready; its last lines:"
            raise FirmqError("\n  ".join([head, *lines]))
        with suppress(OSError):
            return " 200" in (status(self.ports[part]) or "")
        return False

    def _log(self, part: str) -> Path:
        return self.folder / f"{part}.log"

    def _stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(_STOPPED_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(condition: Callable[[], Any], seconds: float, problem: str) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise FirmqError(f"{problem} after {seconds:g} s")
        time.sleep(0.02)
