"""Commands that run on the machines of the system itself: its parts, and those of features.

A part runs in the process of the command, and is imported by its command only.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from firmq.shared.cli.arguments import Parser, add_modules
from firmq.shared.cli.command import Command
from firmq.shared.errors import NotInstalled, needs
from firmq.shared.registry import added, features_of

USAGE = 2
"""The exit status of a part that is not installed."""


def _add_worker(one: argparse.ArgumentParser) -> None:
    add_modules(one)
    text = "queues to take from, such as gpu-*:5,default (default: WORKER_QUEUES, else all)"
    one.add_argument("--queues", metavar="QUEUES", dest="WORKER_QUEUES", help=text)
    for bound, text in (("min", "lowest"), ("max", "highest")):
        setting = f"WORKER_{bound.upper()}_SCORE"
        one.add_argument(
            f"--{bound}-score", metavar="N", dest=setting, help=f"{text} score of its tasks (default: {setting})"
        )
    text = "plain and async tasks that run at a time (default: WORKER_EXECUTORS and EXECUTOR_SLOTS)"
    one.add_argument("--concurrency", type=int, metavar="N", help=text)
    for feature in features_of("shared"):
        for option, (setting, text) in feature.worker_options.items():
            one.add_argument(option, metavar="NAMES", dest=setting, help=f"{text} (default: {setting})")


def _add_user(one: argparse.ArgumentParser) -> None:
    one.add_argument("name", metavar="NAME", help="without `:` and `,`")
    one.add_argument("role", metavar="ROLE", help="viewer, operator or admin")


COMMANDS = {
    "gateway": Command("firmq.gateway.__main__", "gateway", "start a gateway, which serves the REST API"),
    "worker": Command("firmq.worker.main", "worker", "start a worker, which runs tasks", add_arguments=_add_worker),
    "housekeeper": Command(
        "firmq.worker.housekeeping.main",
        "worker",
        "start a housekeeper: retries, schedules, expired leases, retention, metrics of the system",
    ),
    "dashboard": Command("firmq.dashboard.__main__", "dashboard", "start a dashboard"),
    "user": Command(
        "firmq.dashboard.auth.users",
        "dashboard",
        "ask for a password and print a line for DASHBOARD_USERS",
        function="print_user",
        add_arguments=_add_user,
        arguments=lambda wanted: [[wanted.name, wanted.role]],
        prints=True,
    ),
    **{name: command for more in added("commands") for name, command in more.items()},
}
"""Those of features too."""


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
        if command.add_arguments:
            command.add_arguments(one)


def run(wanted: argparse.Namespace) -> int:
    """Runs the command in this process and returns its exit status; 2 when a required package is not installed."""
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
        arguments = command.arguments(wanted)
    except (OSError, UnicodeDecodeError) as error:
        print(f"firmq: {error}", file=sys.stderr)
        return USAGE
    try:
        return int(getattr(module, command.function)(*arguments) or 0)
    except NotInstalled as error:
        print(error, file=sys.stderr)
    except OSError as error:  # a full disk, or a reader that has closed the pipe
        if not command.prints:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"firmq: {error}", file=sys.stderr)
    return USAGE
