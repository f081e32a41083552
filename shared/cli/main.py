"""The command `firmq`: parses arguments, runs one command, and reports an error in one line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from importlib.metadata import PackageNotFoundError, version

from firmq.shared.cli import batch_from, breakdown, bulk, completion, keys, operations, parts, tasks
from firmq.shared.cli.arguments import ASKED, Parser, add_format
from firmq.shared.cli.output import Output
from firmq.shared.client import Client, ClientError, NotInTime, Problem, TaskFailed, Unavailable, Unreachable
from firmq.shared.client.client import DEFAULT_URL

_EPILOG = """\
exit status: 0 done · 1 the task did not complete, or some tasks were refused · 2 invalid command line ·
3 refused, nothing was changed · 4 timed out · 5 gateway unreachable or temporarily unavailable · 130 Ctrl-C
(doctor: 0 ok, 1 warnings, 2 errors)

The API key is read from FIRMQ_API_KEY, so that it is not visible in process lists.
"""


class Status(IntEnum):
    """Exit statuses of the command."""

    DONE = 0
    NOT_COMPLETED = 1
    USAGE = 2
    REFUSED = 3
    NOT_IN_TIME = 4
    UNAVAILABLE = 5
    INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns its exit status."""
    if ASKED in os.environ:
        completion.complete(parser())
    wanted = parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    if "part" in wanted:
        return parts.run(wanted)
    out = Output(sys.stdout, as_json=wanted.json not in (False, "text"))
    try:
        with Client(wanted.url, timeout=wanted.timeout, patience=wanted.patience) as client:
            return int(wanted.run(client, wanted, out) or Status.DONE)
    except (ClientError, ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has closed the pipe
            return Status.DONE
        out.fail(error)
        return status_of(error)
    except KeyboardInterrupt:
        return Status.INTERRUPTED


def status_of(error: Exception) -> Status:
    """Returns the exit status of an error."""
    if isinstance(error, NotInTime):
        return Status.NOT_IN_TIME
    if isinstance(error, Unreachable | Unavailable):
        return Status.UNAVAILABLE
    if isinstance(error, TaskFailed):
        return Status.NOT_COMPLETED
    return Status.REFUSED if isinstance(error, Problem) else Status.USAGE


def _version() -> str:
    try:
        return version("firmq")
    except PackageNotFoundError:  # code that is not installed
        return "development"


def parser() -> Parser:
    """Returns the parser with all commands."""
    top = Parser(
        prog="firmq",
        description="Submits and manages tasks over the REST API of a gateway, and starts the parts of a system.",
        epilog=_EPILOG,
    )
    top.formatter_class = argparse.RawDescriptionHelpFormatter
    top.add_argument("--url", help=f"address of the gateway (default: FIRMQ_URL, else {DEFAULT_URL})")
    top.add_argument("--version", action="version", version=f"firmq {_version()}")
    add_format(top, default=False)
    for name, text in (
        ("--timeout", "time limit of one request (default: 10)"),
        ("--patience", "how long to retry while the gateway does not answer (default: 10)"),
    ):
        top.add_argument(name, type=float, default=10.0, metavar="SECONDS", help=text)
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    tasks.add_commands(commands)
    operations.add_commands(commands)
    bulk.add_commands(
        operations.add_group(commands, "bulk", "many tasks at once: cancel, run-now, move, retry, delete, restore")
    )
    breakdown.add_command(commands)
    batch_from.add_command(commands)
    parts.add_commands(commands)
    completion.add_command(commands)
    keys.add_commands(operations.add_group(commands, "keys", "API keys: create, list, revoke"))
    return top
