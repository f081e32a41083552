"""Commands that run on the machines of the system itself: those that start its parts, handlers, and the doctor.

A part runs in the process of the command, and is imported by its command only.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from firmq.shared.cli.arguments import Parser, add_format
from firmq.shared.cli.data import HELP, read_data
from firmq.shared.errors import NotInstalled, needs

USAGE = 2
"""The exit status of a part that is not installed."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: the function that runs it, and the extra of the package with what its module imports."""

    module: str
    extra: str
    text: str
    function: str = "main"


COMMANDS = {
    "dev": Command(
        "firmq.shared.local.dev",
        "local",
        "start all parts and Redis for development, with handlers loaded anew when they change",
    ),
    "run": Command(
        "firmq.worker.local.run",
        "local",
        "run a handler once in this process, without Redis, where a debugger can be used",
    ),
    "gateway": Command("firmq.gateway.__main__", "gateway", "start a gateway, which serves the REST API"),
    "worker": Command("firmq.worker.main", "worker", "start a worker, which runs tasks"),
    "housekeeper": Command(
        "firmq.worker.housekeeping.main",
        "worker",
        "start a housekeeper: retries, schedules, expired leases, retention, metrics of the system",
    ),
    "dashboard": Command("firmq.dashboard.__main__", "dashboard", "start a dashboard"),
    "outbox": Command(
        "firmq.outbox.main",
        "sqlalchemy",
        "start a relay, which sends the rows of an outbox",
    ),
    "rq-return": Command(
        "firmq.worker.rq_jobs.way_back",
        "worker",
        "return the jobs of RQ programs to RQ's queues, after the workers that ran them have stopped",
    ),
    "rq-import": Command(
        "firmq.worker.rq_jobs.schedule_import",
        "worker",
        "make schedules of the entries of rq-scheduler; without --yes, list what each would become",
    ),
    "user": Command(
        "firmq.dashboard.auth.users",
        "dashboard",
        "ask for a password and print a line for DASHBOARD_USERS",
        function="print_user",
    ),
    "partitions": Command(
        "firmq.shared.cli.partitions",
        "worker",
        "list the partitions; drain one, so that new tasks go to the others, or activate it again",
    ),
    "doctor": Command(
        "firmq.shared.doctor.__main__",
        "worker",
        "examine the system from this machine: settings, Redis, workers, …",
    ),
}


_OUTBOX_ACTIONS = {
    "create": "create the table if it is missing, and exit",
    "refused": "list the rows that were refused, and exit",
    "retry": "make refused rows wait again, and exit",
}


_PRINTING = ("run", "user", "partitions", "doctor", "rq-import")
_RQ_OPTIONS = {
    "--rq": ("RQ_QUEUES", "queues of RQ programs whose jobs it runs too, separated by commas"),
    "--rq-allow": ("RQ_ALLOW", "functions that these jobs may name, such as 'shop.*'"),
}


def main(arguments: Sequence[str]) -> int:
    """Runs one of these commands and returns its exit status."""
    parser = Parser(prog="firmq")
    add_commands(parser.add_subparsers(metavar="COMMAND", required=True))
    return run(parser.parse_args(arguments))


def add_commands(commands: Any) -> None:
    """Adds the commands to a parser."""
    for name, command in COMMANDS.items():
        one = commands.add_parser(name, help=command.text, description=f"{command.text[:1].upper()}{command.text[1:]}.")
        one.set_defaults(part=name)
        if add_arguments := _ADD_ARGUMENTS.get(name):
            add_arguments(one)


def _add_modules(one: argparse.ArgumentParser) -> None:
    default = "TASK_MODULES, else the examples"
    one.add_argument("modules", nargs="*", metavar="MODULE", help=f"module with handlers (default: {default})")


def _add_dev(one: argparse.ArgumentParser) -> None:
    _add_modules(one)
    one.add_argument("--port", type=int, help="port of the REST API (default: GATEWAY_PORT, else 8000)")
    one.add_argument("--no-reload", action="store_false", dest="reload", help="keep handlers when files change")


def _add_worker(one: argparse.ArgumentParser) -> None:
    _add_modules(one)
    text = "queues to take from, such as gpu-*:5,default (default: WORKER_QUEUES, else all)"
    one.add_argument("--queues", metavar="QUEUES", dest="WORKER_QUEUES", help=text)
    for bound, text in (("min", "lowest"), ("max", "highest")):
        setting = f"WORKER_{bound.upper()}_SCORE"
        one.add_argument(
            f"--{bound}-score", metavar="N", dest=setting, help=f"{text} score of its tasks (default: {setting})"
        )
    text = "plain and async tasks that run at a time (default: WORKER_EXECUTORS and EXECUTOR_SLOTS)"
    one.add_argument("--concurrency", type=int, metavar="N", help=text)
    for option, (setting, text) in _RQ_OPTIONS.items():
        one.add_argument(option, metavar="NAMES", dest=setting, help=f"{text} (default: {setting})")


def _add_run(one: argparse.ArgumentParser) -> None:
    one.add_argument("type", help="task type")
    one.add_argument("--data", metavar="DATA", help=HELP)
    module = "module with handlers; may be repeated (default: TASK_MODULES, else the examples)"
    one.add_argument("--module", action="append", dest="modules", metavar="MODULE", help=module)
    one.add_argument("--pdb", action="store_true", help="open the debugger where the handler raised an error")


def _add_user(one: argparse.ArgumentParser) -> None:
    one.add_argument("name", metavar="NAME", help="without `:` and `,`")
    one.add_argument("role", metavar="ROLE", help="viewer, operator or admin")


def _add_partitions(one: argparse.ArgumentParser) -> None:
    add_format(one)
    actions = one.add_subparsers(title="commands", metavar="COMMAND", dest="action")
    drains = actions.add_parser(
        "drain", help="send new tasks to the other partitions: before removing one, or before adding a new one"
    )
    drains.add_argument("--wait", action="store_true", help="wait until all its tasks have ended")
    activates = actions.add_parser("activate", help="let a draining partition take new tasks")
    for each in (drains, activates):
        each.add_argument(
            "number",
            type=int,
            metavar="N",
            help="number of the partition: its place in REDIS_PARTITIONS, from 0, or its number in a cluster",
        )


def _add_outbox(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--database", metavar="URL", dest="OUTBOX_DATABASE", help="a URL of SQLAlchemy (default: OUTBOX_DATABASE)"
    )
    does = one.add_mutually_exclusive_group()
    for action, text in _OUTBOX_ACTIONS.items():
        does.add_argument(f"--{action}", action="store_const", const=action, dest="action", help=text)


_ADD_ARGUMENTS = {
    "dev": _add_dev,
    "worker": _add_worker,
    "run": _add_run,
    "user": _add_user,
    "doctor": add_format,
    "outbox": _add_outbox,
    "rq-import": lambda one: one.add_argument("--yes", action="store_true", help="make them, and remove the entries"),
    "partitions": _add_partitions,
}


def run(wanted: argparse.Namespace) -> int:
    """Runs the command in this process and returns its exit status; 2 when what it needs is not installed."""
    command = COMMANDS[wanted.part]
    try:
        with needs(f"firmq {wanted.part}", extra=command.extra):
            module = import_module(command.module)
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return USAGE
    if modules := getattr(wanted, "modules", None):
        os.environ["TASK_MODULES"] = ",".join(modules)
    if concurrency := getattr(wanted, "concurrency", None):
        os.environ |= dict.fromkeys(("WORKER_EXECUTORS", "EXECUTOR_SLOTS"), str(concurrency))
    os.environ.update({name: value for name, value in vars(wanted).items() if name.isupper() and value})
    try:
        arguments = _arguments(wanted)
    except (OSError, UnicodeDecodeError) as error:
        print(f"firmq: {error}", file=sys.stderr)
        return USAGE
    try:
        return int(getattr(module, command.function)(*arguments) or 0)
    except NotInstalled as error:
        print(error, file=sys.stderr)
    except OSError as error:  # a full disk, or a reader that has closed the pipe
        if wanted.part not in _PRINTING:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"firmq: {error}", file=sys.stderr)
    return USAGE


def _arguments(wanted: argparse.Namespace) -> list[Any]:
    as_json = getattr(wanted, "json", False) not in (False, "text")
    if wanted.part == "dev":
        return [wanted.port, wanted.reload]
    if wanted.part == "run":
        return [wanted.type, read_data(wanted.data), wanted.pdb]
    if wanted.part == "user":
        return [[wanted.name, wanted.role]]
    if wanted.part == "doctor":
        return [["--json"] if as_json else []]
    if wanted.part == "partitions":
        number, wait = getattr(wanted, "number", None), getattr(wanted, "wait", False)
        return [wanted.action or "list", number, wait, as_json]
    if wanted.part == "rq-import":
        return [wanted.yes]
    if wanted.part == "outbox":
        return [wanted.action]
    return []
