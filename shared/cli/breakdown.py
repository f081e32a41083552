"""The command that counts tasks by the content of their data."""

from __future__ import annotations

import argparse
from typing import Any

from firmq.shared.cli.arguments import command
from firmq.shared.cli.bulk import add_filters, filters_of
from firmq.shared.cli.output import Output, columns
from firmq.shared.client import Client, ValueCounts

_LIST = columns("value, tasks")


def add_command(commands: Any) -> None:
    """Adds the command to the parser."""
    one = command(commands, "breakdown", "count tasks by the fields of their data and by tag", count)
    one.add_argument("field", nargs="?", metavar="FIELD", help="such as customer.id; default: the first tasks' fields")
    add_filters(one)
    one.add_argument("--batch", help="the tasks of this batch; of the filters, only --status applies then")
    one.add_argument("--limit", type=int, default=10, metavar="N", help="values of a field, at most 100 (default: 10)")


def count(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    """Prints the most frequent values of each field."""
    found = client.breakdown(wanted.field, batch_id=wanted.batch, **filters_of(wanted))
    if out.as_json:
        out.value(found)
        return
    large = f"; {found.large} with more than 64 kB of data are not counted" if found.large else ""
    out.line(f"{found.tasks} tasks" + ("" if found.complete else "; these are the latest, there are more") + large)
    for each in (*found.fields, found.tags) if not wanted.field else found.fields:
        _print(out, each, wanted.limit)


def _print(out: Output, values: ValueCounts, limit: int) -> None:
    """Prints the values of a field; nothing for one that no task has."""
    if not values.values:
        return
    without = f", {values.missing} tasks without" if values.missing else ""
    out.line("")
    out.line(f"{values.field or 'tags'}: {values.distinct} different{without}")
    out.table(_LIST, values.values[:limit])
