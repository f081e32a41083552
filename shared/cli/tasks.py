"""Commands for tasks: submit, show, watch, list, wait, cancel, batch."""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from itertools import islice
from typing import IO, Any, cast

from firmq.shared.cli import data
from firmq.shared.cli.arguments import add_limit, add_period, command, moment
from firmq.shared.cli.output import Output, columns, dump
from firmq.shared.cli.task_text import show_task
from firmq.shared.client import Batch, Client, NotFound, Task, TaskState
from firmq.shared.submission.options import Options

SEARCH = "words such as state:failed error:timeout data.customer:42 worker:NAME version:1.42 age>1h"
_SCORE = "order in its queue, the lower the sooner"
_TASKS = columns("task_id TASK, type, status, queue, created_at CREATED")
_OF_BATCHES = ("name", "max_running", "stop_on_error", "idempotency_key")
_FILTERS = (
    *("status", "task_type", "queue", "priority", "tag", "submitted_by", "since", "until"),
    *("min_score", "max_score", "deleted", "search"),
)


def add_commands(commands: Any) -> None:
    """Adds the commands to the parser."""
    _add_submit(commands)
    for name, run, text in (
        ("show", show, "show a task with all attempts, or a batch"),
        ("watch", watch, "follow a task or a batch until it has ended"),
    ):
        command(commands, name, text, run).add_argument("id", help="id of a task or a batch")
    command(commands, "stream", "print the output of a task until it has ended: text, or JSON", stream, "id")
    waits = command(commands, "wait", "wait for a task and print its result", wait, "id")
    text = "maximum time to wait (default: unlimited)"
    waits.add_argument("--for", dest="seconds", type=float, metavar="SECONDS", help=text)
    _add_list(commands)
    _add_changes(commands)
    batches = command(commands, "batch", "submit a file of tasks as a batch, one JSON object per line", batch)
    batches.add_argument("file", type=str, help="path of the file; - reads standard input")
    batches.add_argument("--name")
    batches.add_argument("--max-running", type=int)
    batches.add_argument("--stop-on-error", type=int, metavar="FAILURES")
    batches.add_argument("--idempotency-key", help="makes resending the file store nothing twice")
    batches.add_argument("--watch", action="store_true", help="follow the batch until all its tasks have ended")


def _add_list(commands: Any) -> None:
    lists = command(commands, "list", "list tasks, newest first", list_tasks)
    lists.add_argument("--status", choices=[each.value for each in TaskState])
    lists.add_argument("--type", dest="task_type")
    for name in ("--queue", "--priority", "--tag"):
        lists.add_argument(name)
    lists.add_argument("--submitted-by", metavar="CLIENT")
    add_period(lists, "submitted (with --status: entered it)")
    for bound, text in (("min", "lowest"), ("max", "highest")):
        lists.add_argument(f"--{bound}-score", type=float, metavar="N", help=f"{text} score")
    lists.add_argument("--search", metavar="WORDS", help=SEARCH)
    lists.add_argument("--deleted", action="store_true", help="deleted tasks that can be restored")
    add_limit(lists)


def _add_changes(commands: Any) -> None:
    updates = command(commands, "update", "change a task that waits", update)
    updates.add_argument("id", metavar="ID")
    updates.add_argument("--queue")
    updates.add_argument("--delay", type=float, metavar="SECONDS", help="seconds before it may run; 0: now")
    updates.add_argument("--run-at", type=moment, metavar="TIME")
    updates.add_argument("--data", help=data.HELP)
    updates.add_argument("--score", type=float, metavar="N", help=_SCORE)
    signals = command(commands, "signal", "send a task the signal that its handler waits for", signal)
    signals.add_argument("id", metavar="ID")
    signals.add_argument("name", metavar="NAME")
    signals.add_argument("--data", default="null", help=f"{data.HELP}; default: null")
    signals.add_argument("--replace", action="store_true", help="correct a signal that was sent with other data")
    restores = command(commands, "restore", "restore tasks that were cancelled or deleted", restore)
    cancels = command(commands, "cancel", "cancel tasks", cancel)
    for each in (restores, cancels):
        each.add_argument("ids", nargs="+", metavar="ID")
    cancels.add_argument("--reason", default="cancelled on the command line")


def _add_submit(commands: Any) -> None:
    submits = command(commands, "submit", "submit a task", submit)
    submits.add_argument("type", help="task type; the error for an unknown one lists the known ones")
    submits.add_argument("data", nargs="?", help=data.HELP)
    where = submits.add_mutually_exclusive_group()
    where.add_argument("--queue", help="name of a queue, which the first task creates")
    where.add_argument("--priority", help="name of a configured queue; by default critical, high, normal or low")
    submits.add_argument("--delay", type=float, metavar="SECONDS", help="seconds before it may run")
    submits.add_argument("--run-at", type=moment, metavar="TIME", help="earliest start, such as 2030-01-31T12:00:00Z")
    text = "seconds after which it expires if not started"
    submits.add_argument("--expires-in", type=float, metavar="SECONDS", help=text)
    submits.add_argument("--time-limit", type=float, metavar="SECONDS", help="time limit of one attempt")
    submits.add_argument("--max-retries", type=int, metavar="N", help="retries before it becomes a dead letter")
    submits.add_argument("--tag", action="append", dest="tags", metavar="TAG", help="tag to filter by; may be repeated")
    submits.add_argument("--unique-key", metavar="KEY", help="allow one task of the type with this key at a time")
    text = "action when another task holds the key"
    submits.add_argument("--on-conflict", choices=["refuse", "existing", "replace"], help=text)
    text = "task that must complete first; may be repeated"
    submits.add_argument("--after", action="append", dest="depends_on", metavar="TASK", help=text)
    text = "with several partitions: same key, same partition, so --after can name it"
    submits.add_argument("--placement-key", metavar="KEY", help=text)
    submits.add_argument("--limit-key", metavar="KEY", help="apply the limit of this key")
    submits.add_argument("--fair-key", metavar="TENANT", help="tenant of the task; tenants take turns")
    submits.add_argument("--score", type=float, metavar="N", help=_SCORE)
    submits.add_argument("--idempotency-key", metavar="KEY", help="makes resending the task store nothing twice")
    submits.add_argument("--watch", action="store_true", help="follow the task until it has ended")


def submit(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    """Submits a task and prints its id."""
    given = {name: value for name, value in vars(wanted).items() if name in Options.__annotations__}
    options = cast("Options", given | {"timeout": wanted.time_limit})
    value = data.read_data(wanted.data)
    task = client.submit(wanted.type, value, idempotency_key=wanted.idempotency_key, **options)
    out.either(task, task.task_id)
    return _follow(client, task.task_id, out) if wanted.watch else 0


def show(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    """Prints the whole record of a task or a batch."""
    try:
        found = client.get(wanted.id)
    except NotFound:
        out.value(client.batches.get(wanted.id))
    else:
        out.value(found) if out.as_json else show_task(found, out)


def watch(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    """Follows a task or a batch. Returns 1 when the task, or any of the batch, does not complete."""
    return _follow(client, wanted.id, out)


def _follow(client: Client, name: str, out: Output) -> int:
    seen: Task | Batch | None = None
    try:
        for seen in _states(client, name):
            out.progress(seen)
    finally:
        out.end_progress()
    if isinstance(seen, Batch):
        return 0 if seen.counts.get("completed") == seen.total else 1
    return 0 if seen is not None and seen.status is TaskState.COMPLETED else 1


def _states(client: Client, name: str) -> Iterator[Task | Batch]:
    try:
        yield from client.watch(name)
    except NotFound:
        yield from client.batches.watch(name)


def stream(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    """Prints chunks as they come: text as it is, anything else as JSON in a line of its own."""
    last = "\n"
    for each in client.stream(wanted.id):
        if each.truncated:
            print("the task has reached MAX_OUTPUT_BYTES: its output ends here", file=sys.stderr)
        elif isinstance(each.chunk, str) and not out.as_json:
            print(each.chunk, end="", file=out.stream, flush=True)
            last = each.chunk or last
        else:
            print(dump(each.chunk), file=out.stream, flush=True)
            last = "\n"
    print(end="" if last.endswith("\n") else "\n", file=out.stream, flush=True)


def wait(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    """Prints the result as JSON. Raises TaskFailed when the task ended in another state than completed."""
    print(dump(client.result(wanted.id, wanted.seconds)), file=out.stream)


def list_tasks(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    """Lists tasks, newest first."""
    found = client.tasks(**{name: getattr(wanted, name) for name in _FILTERS})
    wanted_ones = islice(found, wanted.limit or None)
    out.table(_TASKS, wanted_ones if out.as_json else map(_task, wanted_ones))


def _task(task: Task) -> dict[str, Any]:
    """Returns a row of the list; a corrupt record has status `broken`, as in the dashboard."""
    return {**asdict(task), "status": "broken" if task.corrupt else task.status}


def update(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    changes = {"queue": wanted.queue, "delay": wanted.delay, "run_at": wanted.run_at, "score": wanted.score}
    given = {name: value for name, value in changes.items() if value is not None}
    out.value(
        client.update(wanted.id, **given, **({"data": data.read_data(wanted.data)} if wanted.data is not None else {}))
    )


def signal(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    out.ended(client.signal(wanted.id, wanted.name, data.read_data(wanted.data), replace=wanted.replace))


def restore(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    """Restores tasks one by one; stops at the first error."""
    for each in wanted.ids:
        out.ended(client.restore(each))


def cancel(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    """Cancels tasks one by one; stops at the first error."""
    for each in wanted.ids:
        out.ended(client.cancel(each, wanted.reason))


def batch(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    """Submits a batch and prints refused lines. Returns 1 when any was refused."""
    numbers: deque[int] = deque()
    with _open(wanted.file) as lines:
        feed = client.batch(_read_tasks(lines, numbers), **{name: getattr(wanted, name) for name in _OF_BATCHES})
        for item in feed:
            number = numbers.popleft()
            if out.as_json:
                out.value(item)
            elif item.problem:
                out.line(f"line {number} refused: {item.problem['title']}: {item.problem['detail']}")
    counts = {"batch_id": feed.batch_id, "accepted": feed.accepted, "refused": feed.refused}
    out.either(counts, f"batch {feed.batch_id}: {feed.accepted} accepted, {feed.refused} refused")
    ended_well = _follow(client, feed.batch_id, out) if wanted.watch and feed.batch_id else 0
    return 1 if feed.refused else ended_well


def _open(name: str) -> Any:
    return nullcontext(sys.stdin) if name == "-" else open(name, encoding="utf-8-sig")


def _read_tasks(lines: IO[str], numbers: deque[int]) -> Iterator[dict[str, Any]]:
    """Yields the tasks of all lines that are not blank, and appends the number of each line."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            json.dumps(value, allow_nan=False)
        except ValueError as error:
            raise ValueError(f"line {number} is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise ValueError(f'line {number} must be a JSON object such as {{"type": "process", "data": 1}}')
        numbers.append(number)
        yield value
