"""The command `firmq partitions`."""

from __future__ import annotations

import argparse

from firmq.shared.cli.arguments import add_format
from firmq.shared.cli.command import Command


def _add_actions(one: argparse.ArgumentParser) -> None:
    add_format(one)
    actions = one.add_subparsers(title="commands", metavar="COMMAND", dest="action")
    drains = actions.add_parser(
        "drain", help="send new tasks to the other partitions, before you remove one or add a new one"
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


COMMANDS = {
    "partitions": Command(
        "firmq.shared.features.partitions.command",
        "worker",
        "list the partitions; drain one, so that new tasks go to the others, or activate it again",
        add_arguments=_add_actions,
        arguments=lambda wanted: [
            wanted.action or "list",
            getattr(wanted, "number", None),
            getattr(wanted, "wait", False),
            getattr(wanted, "json", False) not in (False, "text"),
        ],
        prints=True,
    ),
}
