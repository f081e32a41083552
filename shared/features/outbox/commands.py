"""The command that starts a relay."""

from __future__ import annotations

import argparse

from firmq.shared.cli.command import Command

_ACTIONS = {
    "create": "create the table if it is missing, and exit",
    "refused": "list the rows that were refused, and exit",
    "retry": "make refused rows wait again, and exit",
}


def _add_outbox(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--database", metavar="URL", dest="OUTBOX_DATABASE", help="a URL of SQLAlchemy (default: OUTBOX_DATABASE)"
    )
    does = one.add_mutually_exclusive_group()
    for action, text in _ACTIONS.items():
        does.add_argument(f"--{action}", action="store_const", const=action, dest="action", help=text)


COMMANDS = {
    "outbox": Command(
        "firmq.outbox.main",
        "sqlalchemy",
        "start a relay, which sends the rows of an outbox",
        add_arguments=_add_outbox,
        arguments=lambda wanted: [wanted.action],
    )
}
