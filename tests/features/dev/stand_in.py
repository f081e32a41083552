"""A service that does nothing but behave: it becomes ready, keeps a journal, and obeys signals as it is told to.

The journal is one file for all services of a test, a line for each event, so that its order is the order of events.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import FrameType

from firmq.shared.config.signals import RELOAD

PORT_VARIABLES = {
    "gateway": "GATEWAY_PORT",
    "dashboard": "DASHBOARD_PORT",
    "worker": "WORKER_METRICS_PORT",
    "housekeeper": "HOUSEKEEPER_METRICS_PORT",
}


class Ready(BaseHTTPRequestHandler):
    """Answers `/health/ready` and nothing else."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health/ready" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class chose the name
        pass


class StandIn:
    """One service.

    `stubbornness` is how many times SIGTERM has to come before it ends; "never" stands for a great many.
    """

    def __init__(self, name: str, port: int, journal: Path, stubbornness: int) -> None:
        self._name = name
        self._server = HTTPServer(("127.0.0.1", port), Ready)
        self._journal = journal
        self._terms_to_go = stubbornness

    def run(self) -> None:
        """Serves until SIGTERM has come often enough."""
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(RELOAD, lambda number, frame: self.note("told to reload"))
        self.note("started")
        print(f"hello from {self._name}")
        self._server.serve_forever(poll_interval=0.02)
        self.note("ended")

    def note(self, event: str) -> None:
        """A line in the journal, written in one go, so that lines of several services do not mix."""
        with self._journal.open("a") as journal:
            journal.write(f"{self._name} {event} {os.getpid()}\n")

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        self.note("told to stop")
        self._terms_to_go -= 1
        if self._terms_to_go == 0:
            # Not from here: shutdown() waits for the loop that this handler has interrupted.
            threading.Thread(target=self._server.shutdown).start()


def main(name: str) -> None:
    """Behaves as the environment says.

    `FAULTY` names the part that dies at once, `STUBBORN` the one that lingers, `LEAVES_A_CHILD` the one whose child
    does not notice the end of its parent, `WAITS_FOR` the one that is not ready before a file is there.
    """
    if os.environ.get("FAULTY") == name:
        print(f"{name} cannot find its slippers")
        sys.exit(3)
    if os.environ.get("LEAVES_A_CHILD") == name:
        subprocess.Popen(["sleep", "60"])
    part, _, gate = os.environ.get("WAITS_FOR", "").partition(":")
    while part == name and not Path(gate).exists():
        time.sleep(0.02)
    stubbornness = int(os.environ.get("STUBBORNNESS", "2")) if os.environ.get("STUBBORN") == name else 1
    port = int(os.environ[PORT_VARIABLES[name]])
    StandIn(name, port, Path(os.environ["JOURNAL"]), stubbornness).run()


if __name__ == "__main__":
    main(sys.argv[1])
