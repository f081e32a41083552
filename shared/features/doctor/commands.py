"""The command of the doctor."""

from __future__ import annotations

import argparse

from firmq.shared.cli.arguments import add_format
from firmq.shared.cli.command import Command


def _arguments(wanted: argparse.Namespace) -> list[list[str]]:
    return [["--json"] if getattr(wanted, "json", False) not in (False, "text") else []]


COMMANDS = {
    "doctor": Command(
        "firmq.shared.features.doctor.main",
        "worker",
        "examine the system from this machine: settings, Redis, workers, …",
        add_arguments=add_format,
        arguments=_arguments,
        prints=True,
    )
}
