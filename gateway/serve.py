"""Processes that serve the app: gunicorn starts, monitors and stops them; waitress reads the requests in each.

Measured on two cores that also ran Redis, the load generator and other work: POST /tasks over 16 connections,
16 threads a process, middle of three interleaved rounds; then ordinary requests beside 200 sockets that send a header
byte by byte and 200 that send a body so.

    server               requests/s   p99 ms   beside 400 slow sockets   slow ones are cut     on SIGTERM
    gunicorn gthread x1         930       40   none answered in 8 s      never                 finishes
    gunicorn gthread x2       1,530       60   –                         –                     finishes
    granian x1                1,290       54   none answered in 8 s      headers after 30 s    finishes
    granian x2                2,000       72   –                         –                     finishes
    cheroot x1                1,080       35   –                         –                     –
    waitress x1               1,200       39   p50 4 ms, p99 13 ms       never                 cuts requests
    this, x1                    880       54   –                         after 20 s            finishes
    this, x2                  1,500      100   p50 4 ms, p99 12 ms       after 20 s            finishes

At a steady 500 requests a second this, x2, answers with p50 1.5 ms and p99 9 to 31 ms, depending on the neighbours.

A server whose threads read sockets is starved by slow clients. waitress passes a request to a thread only when all of
it has arrived, but has a single process, which the GIL limits to one core, and aborts running requests when it stops.
So gunicorn's processes run waitress's loop (`shared/http/server.py`).
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
import time
from typing import Any

from firmq.shared.config.settings import Settings, exit_with
from firmq.shared.errors import SettingsError
from firmq.shared.http import bind
from firmq.shared.http.gunicorn import Served, memory_folder, require_authentication
from firmq.shared.redis.client import connect_for
from firmq.shared.redis.startup_check import exit_if_unusable
from firmq.shared.stores.api_keys import Keyring

log = logging.getLogger(__name__)

THREADS = 24
"""Threads per process, for requests that wait for Redis or for a result. Each may hold one connection to Redis."""
WAITERS = 12
"""Maximum threads that wait for results."""
DRAIN_SECONDS = 20


def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT, then finishes running requests. Exits with status 2 when it cannot start."""
    keyring = _keys_or_exit(settings)
    if not keyring.required:
        remedy = "API_KEYS or API_KEYS_FILE (firmq keys create CLIENT SCOPE makes a line)"
        require_authentication(settings, missing="API keys", remedy=remedy)
    listeners = [bind.listen(settings.bind_host, settings.gateway_port, "gateway", "GATEWAY_PORT")]
    if port := settings.gateway_public_port:
        listeners.append(bind.listen(settings.bind_host, port, "gateway", "GATEWAY_PUBLIC_PORT"))
    for each in settings.stores.values():
        exit_if_unusable(each.store_url)
    folder = _metrics_folder()
    gateway, first = Gateway(settings, folder, *listeners), os.getpid()
    try:
        address = f"http://{bind.shown(settings.bind_host, listeners[0])}"
        keys = "required" if keyring.required else "none: any client that reaches this address has full access"
        log.info("listening", extra={"address": address, "processes": processes(settings), "api_keys": keys})
        gateway.run()
    finally:
        # Processes that gunicorn started also run this when they end, and the others still need the folder.
        if os.getpid() == first:
            gateway.clean_up()


def _keys_or_exit(settings: Settings) -> Keyring:
    try:
        return Keyring(settings.api_keys, settings.api_keys_file, others=settings.has_other_keys())
    except SettingsError as error:
        exit_with(f"invalid settings:\n  {str(error).replace(chr(10), chr(10) + '  ')}")


def processes(settings: Settings) -> int:
    """Returns the number of serving processes: the setting, else one per processor, at most four."""
    return settings.gateway_processes or min(4, os.cpu_count() or 1)


class Gateway(Served):
    """The gateway as gunicorn runs it."""

    def __init__(self, settings: Settings, metrics_folder: str, *listeners: socket.socket) -> None:
        self.metrics_folder = metrics_folder
        self.started_at = time.time()
        super().__init__(settings, *listeners)

    def load_config(self) -> None:
        self.configure(
            workers=processes(self.settings),
            worker_class="firmq.gateway.http.server.GunicornWorker",
            threads=THREADS,
            graceful_timeout=DRAIN_SECONDS,
            backlog=bind.BACKLOG,
            child_exit=_forget_process,
        )

    def load(self) -> Any:
        """Builds the app, in each process, so that processes share no connection."""
        from firmq.gateway.app import create_app
        from firmq.gateway.feature import features
        from firmq.gateway.metrics import Metrics

        metrics = Metrics(shared_folder=self.metrics_folder, started_at=self.started_at)
        if len(self.settings.stores) > 1:
            return next(each.serve for each in features() if each.serve)(self.settings, metrics, WAITERS)
        [settings] = self.settings.stores.values()
        return create_app(settings, connect_for(settings, "gateway"), metrics=metrics, waiters=WAITERS)

    def clean_up(self) -> None:
        """Removes the metrics folder; run by the first process, or by the others if that was killed."""
        shutil.rmtree(self.metrics_folder, ignore_errors=True)


def _forget_process(server: Any, worker: Any) -> None:
    """Keeps the counts of an ended process."""
    from firmq.gateway.metrics import take_over

    take_over(server.app.metrics_folder, worker.pid)


def _metrics_folder() -> str:
    """Creates the folder for the counts of all processes; prometheus_client reads its variable at import."""
    folder = tempfile.mkdtemp(prefix="gateway-metrics-", dir=memory_folder())
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    return folder
