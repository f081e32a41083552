"""Runs a relay as a process of its own: signals, metrics, health."""

from __future__ import annotations

import logging
import os
import signal
import threading

from firmq.outbox.metrics import registry_of
from firmq.outbox.relay import Relay
from firmq.outbox.rows import Table
from firmq.outbox.senders import sender_for
from firmq.shared.client import ClientError
from firmq.shared.client.client import DEFAULT_URL
from firmq.shared.config.redis_address import without_password
from firmq.shared.config.settings import Settings, exit_with
from firmq.shared.http.metrics_server import Check, MetricsServer

log = logging.getLogger(__name__)

REFUSED_SHOWN = 100


def run_relay(table: Table, settings: Settings) -> None:
    """Runs a relay until SIGTERM or SIGINT; exits with status 2 for an invalid address or a port in use."""
    url = os.environ.get("FIRMQ_URL", "").strip()
    try:
        sender = sender_for(url)
    except (ClientError, ValueError) as error:
        exit_with(str(error))
    relay = Relay(table, sender)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda signum, frame: stop.set())
    server = _metrics_server(relay, settings)
    server.start()
    log.info("the relay sends the rows of the outbox to %s", without_password(url or DEFAULT_URL))
    relay.run(stop)
    server.stop()
    sender.close()


def refused_lines(table: Table) -> list[str]:
    """Returns a line for each of the first refused rows."""
    return [
        f"{row.task_id} {row.type} {row.created_at.isoformat(timespec='seconds')} {row.error}"
        for row in table.refused(REFUSED_SHOWN)
    ]


def _metrics_server(relay: Relay, settings: Settings) -> MetricsServer:
    port = settings.outbox_metrics_port
    try:
        return MetricsServer(
            settings.bind_host,
            port,
            registry_of(relay),
            live=lambda: Check(True, {}),
            ready=lambda: Check(not relay.failing, {"failing": relay.failing}),
        )
    except OSError as error:
        exit_with(
            f"port {port} for the relay's metrics cannot be used ({error.strerror}): "
            "free it, or set OUTBOX_METRICS_PORT to another one (0 takes any free port)"
        )
