"""The command that creates a batch from earlier tasks."""

from __future__ import annotations

import argparse
import json
from typing import Any

from firmq.shared.cli.arguments import command
from firmq.shared.cli.bulk import add_filters, add_place, filters_of
from firmq.shared.cli.output import Output
from firmq.shared.client import Client


def add_command(commands: Any) -> None:
    """Adds the command to the parser."""
    one = command(commands, "batch-from", "submit a batch with a task for each of many earlier ones", create)
    example = '{"type": "publish", "data": {"url": {"$from": "result.url"}}}'
    one.add_argument("task", type=_task, metavar="TASK", help=f"JSON, for example: {example}")
    add_filters(one)
    add_place(one)
    one.add_argument("--limit", type=int, metavar="N", help="maximum number of tasks")
    one.add_argument("--batch", help="the tasks of this batch; of the filters, only --status and --limit apply then")
    one.add_argument("--name", help="name of the new batch")
    one.add_argument("--max-running", type=int)
    one.add_argument("--idempotency-key", help="makes a repetition create no second batch")


def _task(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError("must be a JSON object with a type")
    return found


def create(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    """Creates the batch and prints refused tasks. Returns 1 when any was refused."""
    options = {name: getattr(wanted, name) for name in ("name", "max_running", "idempotency_key", "limit")}
    found = client.batches.create_from(wanted.task, batch_id=wanted.batch, **options, **filters_of(wanted))
    if out.as_json:
        out.value(found)
    else:
        for each in found.items:
            if each.problem:
                out.line(f"task {each.index} refused: {each.problem['title']}: {each.problem['detail']}")
        out.line(f"batch {found.batch_id}: {found.accepted} accepted, {found.refused} refused")
    return 1 if found.refused else 0
