"""The commands `firmq dev` and `firmq run`."""

from __future__ import annotations

import argparse

from firmq.shared.cli.arguments import add_modules
from firmq.shared.cli.command import Command
from firmq.shared.cli.data import HELP, read_data


def _add_dev(one: argparse.ArgumentParser) -> None:
    add_modules(one)
    one.add_argument("--port", type=int, help="port of the REST API (default: GATEWAY_PORT, else 8000)")
    one.add_argument("--no-reload", action="store_false", dest="reload", help="do not reload handlers after changes")


def _add_run(one: argparse.ArgumentParser) -> None:
    one.add_argument("type", help="task type")
    one.add_argument("--data", metavar="DATA", help=HELP)
    module = "module with handlers; may be repeated (default: TASK_MODULES, else the examples)"
    one.add_argument("--module", action="append", dest="modules", metavar="MODULE", help=module)
    one.add_argument("--pdb", action="store_true", help="open the debugger where the handler raised an error")


COMMANDS = {
    "dev": Command(
        "firmq.shared.features.dev.main",
        "local",
        "start all parts and Redis for development, and reload handlers when they change",
        add_arguments=_add_dev,
        arguments=lambda wanted: [wanted.port, wanted.reload],
    ),
    "run": Command(
        "firmq.worker.features.dev.run",
        "local",
        "run a handler once in this process, without Redis, where a debugger can be used",
        add_arguments=_add_run,
        arguments=lambda wanted: [wanted.type, read_data(wanted.data), wanted.pdb],
        prints=True,
    ),
}
