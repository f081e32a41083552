"""What RQ's page on workers shows, as far as a program can do it."""

from __future__ import annotations

from rq import Worker
from rq.command import send_shutdown_command

from tests.features.rq.program.rows import FINISHED, QUEUE, Program, feature
from tests.support import rq_functions as shop


@feature("`Worker.all()`, `Worker.count()`", [True, True])
def workers(program: Program) -> object:
    found = Worker.all(connection=program.redis)
    return [bool(found), any(QUEUE in each.queue_names() for each in found)]


@feature(
    "`send_shutdown_command`, `send_kill_horse_command`",
    FINISHED,
    differs="with `firmq.rq.Worker` as in RQ, except that a killed job is not retried; else no effect: stop the "
    "process with SIGTERM",
)
def shutdown(program: Program) -> object:
    for each in Worker.all(connection=program.redis):
        send_shutdown_command(program.redis, each.name)
    return program.end(program.queue.enqueue(shop.add, 1, 1))
