"""Commands for bulk actions: on many tasks, in the background, at a rate."""

from __future__ import annotations

import argparse
from typing import Any

from firmq.shared.cli.arguments import add_period, command
from firmq.shared.cli.data import read_data
from firmq.shared.cli.output import Output, columns, dump
from firmq.shared.cli.tasks import SEARCH
from firmq.shared.client import BulkPreview, Client, TaskState

_ACTIONS = {
    "cancel": "cancel waiting tasks; with --status running, running ones",
    "run-now": "run scheduled and retrying tasks now",
    "move": "move waiting tasks to another queue",
    "retry": "retry dead letters",
    "delete": "delete ended tasks",
    "restore": "restore cancelled tasks; with --deleted, deleted ones",
}
_CHANGES = {
    "pause": "pause a bulk action",
    "resume": "resume a bulk action",
    "abort": "end a bulk action",
    "undo": "restore the tasks that a bulk action cancelled or deleted",
}
_FILTERS = (
    *("status", "type", "queue", "tag", "submitted_by", "cause", "since", "until", "deleted", "search"),
    "partition",
)
_LIST = columns("action_id BULK ACTION, action, status, done, total, rate PER SECOND, what TASKS")
_SAMPLE = columns("task_id TASK, type, status, queue, created_at SUBMITTED")


def add_commands(group: Any) -> None:
    """Adds the commands to their group."""
    for name, text in _ACTIONS.items():
        one = group.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}. Without --yes only counts.")
        one.add_argument("ids", nargs="*", metavar="ID", help="ids of tasks, in place of a filter")
        one.set_defaults(deleted=None, canary=None)
        add_filters(one)
        one.add_argument("--limit", type=int, metavar="N", help="maximum number of tasks")
        add_place(one)
        if name == "move":
            one.add_argument("--to", required=True, metavar="QUEUE", help="the queue to move to")
        if name == "retry":
            add_change(one)
            some = "retry N first; the others follow while 95 %% of the retried tasks complete"
            one.add_argument("--canary", type=int, metavar="N", help=some)
        if name == "restore":
            one.add_argument("--deleted", action="store_true", default=None, help="deleted tasks, not cancelled ones")
        one.add_argument("--rate", type=int, help="tasks per second (default: 100)")
        one.add_argument("--reason", help="for the audit record and the tasks")
        one.add_argument("--yes", action="store_true", help="start the action; else count and show some of the tasks")
        one.add_argument("--wait", action="store_true", help="wait for its end")
        one.set_defaults(run=act, action=name.replace("-", "_"), to=None)
    command(group, "list", "list bulk actions, newest first", show_all)
    for name, text in {"show": "show a bulk action", **_CHANGES}.items():
        command(group, name, text, change, change=name).add_argument("action_id", metavar="ID")


def add_change(one: argparse.ArgumentParser) -> None:
    """Adds the options that change the data of dead letters."""
    text = "change the data first: the field (a.b in an object) becomes the value, JSON or text; repeatable"
    one.add_argument("--set", dest="sets", action="append", default=[], metavar="FIELD=VALUE", help=text)
    one.add_argument("--unset", action="append", default=[], metavar="FIELD", help="remove a field of the data first")


def patch_of(wanted: argparse.Namespace) -> dict[str, Any] | None:
    """Returns the JSON merge patch of those options; None without any. Raises ValueError."""
    patch: dict[str, Any] = {}
    for field, value in [
        *(each.partition("=")[::2] for each in wanted.sets),
        *((each, "null") for each in wanted.unset),
    ]:
        *path, name = field.split(".")
        inner: Any = patch
        for each in path:
            inner = inner.setdefault(each, {}) if isinstance(inner, dict) else None
        if not name or not value or not isinstance(inner, dict):
            raise ValueError(f"--set {field}: write FIELD=VALUE, as in --set warehouse=1 or --set address.city=Oslo")
        inner[name] = read_data(value)
    return patch or None


def add_place(one: argparse.ArgumentParser) -> None:
    """Adds the option that names the partition of the tasks."""
    one.add_argument("--partition", type=int, metavar="N", help="with several partitions: the one that has the tasks")


def add_filters(one: argparse.ArgumentParser) -> None:
    """Adds the options that select tasks."""
    one.add_argument("--status", choices=[each.value for each in TaskState])
    for name in ("type", "queue", "tag", "submitted-by"):
        one.add_argument(f"--{name}")
    one.add_argument("--cause", help="key of a group of dead letters")
    one.add_argument("--search", metavar="WORDS", help=SEARCH)
    add_period(one, "entered their status")


def filters_of(wanted: argparse.Namespace) -> dict[str, Any]:
    """Returns the filters that were given."""
    return {name: value for name in _FILTERS if (value := getattr(wanted, name, None)) is not None}


def act(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    """Counts the tasks and shows some; starts the action with --yes."""
    patch = patch_of(wanted) if wanted.action == "retry" else None
    filters = {**filters_of(wanted), "limit": wanted.limit}
    tasks = {"task_ids": wanted.ids or None, "to": wanted.to, "patch": patch, **filters}
    if not wanted.yes:
        return show_preview(client.bulk_actions.preview(wanted.action, **tasks), out)
    how = {name: getattr(wanted, name) for name in ("rate", "reason", "canary")}
    started = client.bulk_actions.start(wanted.action, **how, **tasks)
    out.value(client.bulk_actions.wait(started.action_id) if wanted.wait else started)
    return 0


def show_preview(found: BulkPreview, out: Output) -> int:
    """Prints the effect of an action; returns 1 if its changes of the data are not possible."""
    if out.as_json:
        out.value(found)
        return int(found.unfit > 0)
    out.line(f"{'' if found.exact else 'about '}{found.count} tasks; nothing was changed: start it with --yes")
    if not found.checked:
        out.table(_SAMPLE, found.sample)
        return 0
    out.line(f"{found.checked - found.unfit} of {found.checked} that were checked can have the changed data")
    for each in found.changes[:5]:
        out.line(
            f"{each['task_id']}  {dump(each['before'])} -> {dump(each['after'])}  {each['problem'] or ''}".rstrip()
        )
    return int(found.unfit > 0)


def show_all(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    out.table(_LIST, client.bulk_actions.all())


def change(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    method = "get" if wanted.change == "show" else wanted.change
    out.value(getattr(client.bulk_actions, method)(wanted.action_id))
