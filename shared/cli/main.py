"""The command `taskqueue`: reads its arguments, carries one command out, and says in one line what went wrong."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum

from shared.cli import keys, operations, tasks
from shared.cli.output import Output
from shared.client import Client, ClientError, NotInTime, Problem, TaskFailed, Unavailable, Unreachable
from shared.client.client import DEFAULT_URL

Run = Callable[[Client, argparse.Namespace, Output], int]

_EPILOG = """\
statuses: 0 done · 1 the task did not complete, or some of many were refused · 2 the command line is wrong ·
3 refused: nothing was changed · 4 not in time · 5 no gateway answers, or it cannot do it now · 130 Ctrl-C
(doctor: 0 all is well, 1 something is doubtful, 2 something is wrong)

An API key is taken from TASKQUEUE_API_KEY, where no list of processes shows it.
"""


class Status(IntEnum):
    """How the command ends, for scripts."""

    DONE = 0
    NOT_COMPLETED = 1
    USAGE = 2
    REFUSED = 3
    NOT_IN_TIME = 4
    UNAVAILABLE = 5
    INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Carries out one command; its status."""
    wanted = parser().parse_args(arguments)
    out = Output(sys.stdout, as_json=wanted.json)
    try:
        with Client(wanted.url, timeout=wanted.timeout, patience=wanted.patience) as client:
            return int(wanted.run(client, wanted, out))
    except (ClientError, ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever reads has seen enough
            return Status.DONE
        out.fail(error)
        return status_of(error)
    except KeyboardInterrupt:
        return Status.INTERRUPTED


def status_of(error: Exception) -> Status:
    """The status that stands for an error."""
    if isinstance(error, NotInTime):
        return Status.NOT_IN_TIME
    if isinstance(error, Unreachable | Unavailable):
        return Status.UNAVAILABLE
    if isinstance(error, TaskFailed):
        return Status.NOT_COMPLETED
    return Status.REFUSED if isinstance(error, Problem) else Status.USAGE


def parser() -> argparse.ArgumentParser:
    """Everything that the command knows."""
    top = argparse.ArgumentParser(
        prog="taskqueue", description="Submits tasks and looks after them, over a gateway's REST API.", epilog=_EPILOG
    )
    top.formatter_class = argparse.RawDescriptionHelpFormatter
    top.add_argument("--url", help=f"address of the gateway (else TASKQUEUE_URL, else {DEFAULT_URL})")
    top.add_argument("--json", action="store_true", help="for programs: JSON, one line for each thing")
    top.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS", help="for one request (10)")
    top.add_argument(
        "--patience", type=float, default=10.0, metavar="SECONDS", help="for trying again while nobody answers (10)"
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    tasks.add_commands(commands)
    operations.add_commands(commands)
    keys.add_commands(operations.add_group(commands, "keys", "API keys: create, list, revoke"))
    return top
