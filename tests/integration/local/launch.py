"""A supervisor in a process of its own, with two stand-ins and little patience, to be sent signals by a test."""

from __future__ import annotations

import os
import sys
from datetime import timedelta

from shared.local.ports import free_port
from shared.local.service_log import ServiceLog
from shared.local.supervisor import SUPERVISOR, Service, ServiceDidNotStart, Supervisor, Timing
from tests.integration.local.stand_in import PORT_VARIABLES

TIMING = Timing(
    remind=timedelta(milliseconds=100),
    first_restart=timedelta(milliseconds=50),
    nudge=timedelta(milliseconds=100),
    nudges=5,
)


def stand_in(name: str, grace: timedelta) -> Service:
    port = free_port()
    return Service(
        name=name,
        argv=(sys.executable, "-m", "tests.integration.local.stand_in", name),
        env={**os.environ, PORT_VARIABLES[name]: str(port), "PYTHONUNBUFFERED": "1"},
        ready_url=f"http://127.0.0.1:{port}/health/ready",
        grace=grace,
    )


def main() -> None:
    grace = timedelta(seconds=float(os.environ.get("GRACE", "30")))
    log = ServiceLog(sys.stdout, [SUPERVISOR, "gateway", "worker"], colour=False)
    groups = [[stand_in("gateway", grace)], [stand_in("worker", grace)]]
    try:
        Supervisor(groups, log, on_ready=lambda: log.write("all ready\n"), timing=TIMING).run()
    except ServiceDidNotStart as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
