"""A supervisor in a process of its own, with two stand-ins and little patience, to be sent signals by a test."""

from __future__ import annotations

import os
import sys

from firmq.shared.features.dev.supervisor import SUPERVISOR, Service, ServiceDidNotStart, ServiceLog, Supervisor, Timing
from firmq.shared.http.bind import LOOPBACK, free_port
from tests.features.dev.stand_in import PORT_VARIABLES

TIMING = Timing(remind=0.1, first_restart=0.05, nudge=0.1, nudges=5)


def stand_in(name: str, grace: float) -> Service:
    port = free_port()
    return Service(
        name=name,
        argv=(sys.executable, "-m", "tests.features.dev.stand_in", name),
        env={**os.environ, PORT_VARIABLES[name]: str(port), "PYTHONUNBUFFERED": "1"},
        host=LOOPBACK,
        port=port,
        grace=grace,
    )


def main() -> None:
    grace = float(os.environ.get("GRACE", "30"))
    log = ServiceLog(sys.stdout, [SUPERVISOR, "gateway", "worker"])
    gateway, worker = stand_in("gateway", grace), stand_in("worker", grace)
    groups = [[gateway, worker]] if os.environ.get("TOGETHER") else [[gateway], [worker]]
    try:
        Supervisor(groups, log, on_ready=lambda: log.write("all ready\n"), timing=TIMING).run()
    except ServiceDidNotStart as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
