"""A plugin of pytest that runs RQ's tests with our worker class; it is loaded before they are.

It stands alone in its folder, because RQ's tests are a package `tests` too.
"""

from __future__ import annotations

import fnmatch
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import redis
import rq
import rq.worker

from firmq.rq import Worker as OurWorker

LONGEST = 60.0
"""Seconds after which a worker that has not ended is killed, so that its test fails."""
PORT = int(os.environ["RQ_SUITE_PORT"])
LISTED = dict(line.split(None, 1) for line in Path(os.environ["RQ_SUITE_LIST"]).read_text().splitlines() if line)
"""Why tests do not apply, by patterns of their ids."""
_worked: set[str] = set()


class Worker(OurWorker):
    """Notes that the test has started a worker, and ends one that hangs."""

    def work(self, *arguments: Any, **options: Any) -> bool:
        _worked.add(os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0])
        watch = threading.Timer(LONGEST, self._end_hanging)
        watch.start()
        try:
            return super().work(*arguments, **options)
        finally:
            watch.cancel()

    def _end_hanging(self) -> None:
        if self._child:
            self._child.kill()


for module in (rq, rq.worker):
    module.Worker = module.SimpleWorker = Worker  # type: ignore[attr-defined]
_make_pool = redis.ConnectionPool.__init__


def _of_ours(self: Any, *arguments: Any, **options: Any) -> None:
    """RQ's tests connect to the default port, where a program of this machine may have its data."""
    if options.get("port", 6379) == 6379:
        options["port"] = PORT
    _make_pool(self, *arguments, **options)


redis.ConnectionPool.__init__ = _of_ours  # type: ignore[method-assign]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for pattern, reason in LISTED.items():
            if fnmatch.fnmatchcase(item.nodeid, f"*{pattern}"):
                item.add_marker(pytest.mark.skip(reason=f"not applicable: {reason}"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "")[-600:]
        about = {"id": report.nodeid, "outcome": report.outcome, "worked": report.nodeid in _worked, "reason": reason}
        with Path(os.environ["RQ_SUITE_OUTCOMES"]).open("a") as file:
            file.write(json.dumps(about) + "\n")
