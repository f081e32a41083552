"""Commands for operators: dead letters, queues, task types, schedules, the audit record, the timeline, locks."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from datetime import datetime, time, timedelta
from itertools import islice
from typing import Any

from firmq.shared.cli.arguments import moment
from firmq.shared.cli.bulk import add_change, add_place, filters_of, patch_of, show_preview
from firmq.shared.cli.data import read_data
from firmq.shared.cli.output import Output
from firmq.shared.client import BulkAction, Client, NotInTime, Schedule, Task, TaskState

MOST_RATE = 5000
"""Tasks per second: as fast as the API allows."""
WITHOUT_PROGRESS = 10.0
"""Seconds after which a bulk action that processes no task is no longer waited for."""
Run = Callable[[Client, argparse.Namespace, Output], int]

_DEAD = {"task_id": "TASK", "type": "TYPE", "ended_at": "FAILED", "attempt": "ATTEMPTS", "why": "WHY"}
_QUEUES = {
    "name": "QUEUE",
    "weight": "WEIGHT",
    "pending": "PENDING",
    "scheduled": "SCHEDULED",
    "retrying": "RETRYING",
    "foreign": "FOREIGN",
    "paused": "PAUSED",
    "paused_reason": "WHY",
}
_TYPES = {
    "name": "TYPE",
    "live": "LIVE",
    "versions": "VERSIONS",
    "last_seen_at": "LAST SEEN",
    "paused": "PAUSED",
    "paused_reason": "WHY",
    "paused_until": "UNTIL",
}
_SCHEDULES = {
    "name": "SCHEDULE",
    "type": "TYPE",
    "when": "WHEN",
    "next_at": "NEXT",
    "last_due_at": "LAST",
    "paused": "PAUSED",
}
_AUDIT = {"at": "WHEN", "who": "WHO", "what": "ACTION", "about": "OBJECT", "detail": "DETAIL"}
_TIMELINE = {"at": "WHEN", "kind": "KIND", "title": "EVENT", "detail": "DETAIL"}
_WORKERS = {
    "name": "WORKER",
    "state": "STATE",
    "active": "RUNS",
    "slots": "SLOTS",
    "held": "HELD",
    "completed": "COMPLETED",
    "failed": "FAILED",
    "app_version": "VERSION",
    "reason": "WHY",
}
_LIMITS = {
    "name": "LIMIT",
    "concurrency": "AT ONCE",
    "rate": "RATE",
    "burst": "BURST",
    "running": "RUNNING",
    "waiting": "WAITING",
    "source": "SOURCE",
}
_LOCKS = {"name": "LOCK", "locked": "LOCKED", "owner": "OWNER", "remaining_time": "MS LEFT", "fencing_token": "TOKEN"}


def add_commands(commands: Any) -> None:
    """Adds the commands to the parser."""
    _add_dead_letters(add_group(commands, "dlq", "dead letters: list, retry, delete"))
    _add_queues(add_group(commands, "queues", "queues: list, pause, resume, empty, move-foreign"))
    _add_types(add_group(commands, "types", "task types: list, show, pause, resume"))
    _add_schedules(add_group(commands, "schedules", "schedules: list, put, run, pause, resume, delete"))
    _add_audit(commands)
    _add_timeline(commands)
    workers = commands.add_parser("workers", help="list workers: live ones, then those lost in the last week")
    workers.set_defaults(run=_lists("workers", _WORKERS))
    _add_limits(add_group(commands, "limits", "limits of types and limit keys: list, set, clear"))
    _add_locks(add_group(commands, "locks", "locks of housekeeping: list, unlock"))


def add_group(commands: Any, name: str, text: str) -> Any:
    """Adds a group of commands and returns it."""
    group = commands.add_parser(name, help=text)
    return group.add_subparsers(title="commands", metavar="COMMAND", required=True)


def _add_dead_letters(group: Any) -> None:
    lists = group.add_parser("list", help="list dead letters, latest failure first")
    lists.add_argument("--type", dest="task_type")
    lists.add_argument("--limit", type=int, default=50, help="maximum number; 0: all (default: 50)")
    lists.set_defaults(run=list_dead)
    for name, run, text in (
        ("retry", retry_dead, "retry dead letters"),
        ("delete", delete_dead, "delete dead letters"),
    ):
        one = group.add_parser(name, help=text)
        one.add_argument("ids", nargs="*", metavar="ID")
        one.add_argument("--all", action="store_true", help="all current dead letters, or all of --type")
        add_place(one)
        one.add_argument("--type", dest="task_type")
        if name == "retry":
            one.add_argument("--score", type=float, metavar="N", help="new order in the queue, the lower the sooner")
            add_change(one)
            one.add_argument(
                "--yes", action="store_true", help="with a change of the data: retry; else show the change"
            )
        one.set_defaults(run=run)


def _add_queues(group: Any) -> None:
    group.add_parser("list", help="list queues, highest weight first").set_defaults(run=_lists("queues", _QUEUES))
    pauses = group.add_parser("pause", help="pause a queue: workers claim nothing more from it")
    pauses.add_argument("name")
    _add_pause(pauses)
    pauses.set_defaults(run=_does("queues", "pause", "reason", "until"))
    resumes = group.add_parser("resume", help="resume a queue: workers claim from it again")
    resumes.add_argument("name")
    resumes.set_defaults(run=_does("queues", "resume"))
    empties = group.add_parser("empty", help="cancel all waiting tasks of a queue, in the background")
    empties.add_argument("name")
    empties.add_argument("--rate", type=int, help="tasks per second (default: 100)")
    empties.add_argument("--reason")
    empties.set_defaults(run=_does("queues", "empty", "rate", "reason"))
    moves = group.add_parser("move-foreign", help="move foreign jobs of RQ programs to a queue of RQ")
    moves.add_argument("name")
    moves.add_argument("--to", required=True, metavar="QUEUE", help="a queue that an RQ worker serves")
    moves.set_defaults(run=move_foreign)


def _add_types(group: Any) -> None:
    group.add_parser("list", help="list the task types that workers have published").set_defaults(
        run=_lists("types", _TYPES)
    )
    shows = group.add_parser("show", help="show a task type with the schema of its data")
    pauses = group.add_parser("pause", help="pause a task type: workers start none of its tasks")
    resumes = group.add_parser("resume", help="resume a task type: workers start its tasks again")
    pause = _does("types", "pause", "reason", "until")
    for one, run in ((shows, _does("types", "get")), (pauses, pause), (resumes, _does("types", "resume"))):
        one.add_argument("name")
        one.set_defaults(run=run)
    _add_pause(pauses)


def _add_pause(one: argparse.ArgumentParser) -> None:
    one.add_argument("--reason", required=True)
    text = "when the pause ends: a time of day such as 14:00, or a time such as 2030-01-31T14:00"
    one.add_argument("--until", type=pause_end, metavar="TIME", help=text)


def pause_end(text: str, now: datetime | None = None) -> datetime:
    """Returns a time that a person gave; a time of day is the next one, in the local time zone. Raises ValueError."""
    here = now or datetime.now().astimezone()
    if "-" in text:
        at = datetime.fromisoformat(text)
        return at if at.tzinfo else at.astimezone()
    clock = time.fromisoformat(text)
    at = datetime.combine(here, clock, clock.tzinfo or here.tzinfo)
    return at if at > here else at + timedelta(days=1)


def _add_schedules(group: Any) -> None:
    group.add_parser("list", help="list schedules by name").set_defaults(run=list_schedules)
    puts = group.add_parser("put", help="create or replace a schedule")
    puts.add_argument("name")
    puts.add_argument("type")
    puts.add_argument("data", nargs="?", help="as for submit")
    when = puts.add_mutually_exclusive_group(required=True)
    when.add_argument("--cron")
    when.add_argument("--interval", type=int, metavar="SECONDS")
    puts.add_argument("--timezone")
    puts.add_argument("--queue")
    puts.add_argument("--priority")
    puts.set_defaults(run=put_schedule)
    for name, text in (
        ("show", "show a schedule"),
        ("run", "create a task of a schedule now"),
        ("resume", "resume a schedule"),
        ("delete", "delete a schedule"),
    ):
        one = group.add_parser(name, help=text)
        one.add_argument("name")
        one.set_defaults(run=change_schedule, change=name)
    pauses = group.add_parser("pause", help="pause a schedule")
    pauses.add_argument("name")
    pauses.add_argument("--reason", required=True)
    pauses.set_defaults(run=_does("schedules", "pause", "reason"))


def _add_limits(group: Any) -> None:
    group.add_parser("list", help="list the limits in force, with their use").set_defaults(
        run=_lists("limits", _LIMITS)
    )
    sets = group.add_parser("set", help="set a limit, at once and on all workers")
    sets.add_argument("name", help="type:NAME, or key:NAME for tasks with this limit key")
    sets.add_argument("--concurrency", type=int, metavar="N", help="maximum tasks that run at once")
    sets.add_argument("--rate", help="maximum starts per time, such as 10/s, 100/m or 1/10s")
    sets.add_argument("--burst", type=float, metavar="N", help="maximum starts at once after a pause")
    sets.set_defaults(run=_does("limits", "set", "concurrency", "rate", "burst"))
    clears = group.add_parser("clear", help="remove a limit that was set; a declared one applies again")
    clears.add_argument("name", help="type:NAME or key:NAME")
    clears.set_defaults(run=clear_limit)


def clear_limit(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    client.limits.clear(wanted.name)
    out.value({"name": wanted.name, "removed": True})
    return 0


def _add_locks(group: Any) -> None:
    group.add_parser("list", help="list locks by name").set_defaults(run=_lists("locks", _LOCKS))
    unlocks = group.add_parser("unlock", help="release a lock by force, in an emergency")
    unlocks.add_argument("name")
    unlocks.add_argument("--token", required=True, help="fencing token of the holder, as shown by list")
    unlocks.add_argument("--reason", required=True)
    unlocks.set_defaults(run=unlock)


def _add_audit(commands: Any) -> None:
    audit = commands.add_parser("audit", help="list the changes that people and clients made, newest first")
    for name, text in (("who", "client, key or user"), ("what", "action"), ("about", "object, such as a task")):
        audit.add_argument(f"--{name}", help=f"a part of the {text}")
    for name in ("since", "until"):
        audit.add_argument(f"--{name}", type=moment, metavar="TIME", help="such as 2030-01-31T12:00:00Z")
    audit.add_argument("--limit", type=int, default=50, help="maximum number; 0: all (default: 50)")
    audit.set_defaults(run=list_audit)


def list_audit(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    filters = {name: getattr(wanted, name) for name in ("who", "what", "about", "since", "until")}
    out.table(_AUDIT, islice(client.audit(**filters), wanted.limit or None))
    return 0


def _add_timeline(commands: Any) -> None:
    timeline = commands.add_parser("timeline", help="list deploys, alerts, pauses, lost workers and changes by people")
    timeline.add_argument("--since", type=moment, metavar="TIME", help="default: six hours earlier")
    timeline.add_argument("--until", type=moment, metavar="TIME", help="default: now")
    timeline.set_defaults(run=list_timeline)


def list_timeline(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    """Prints the events of a range, the earliest first, and the gaps."""
    found = client.timeline(since=wanted.since, until=wanted.until)
    if out.as_json:
        out.value(found)
        return 0
    out.table(_TIMELINE, found.events)
    for each in found.incomplete:
        out.line(each)
    return 0


def list_dead(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    found = islice(client.dead_letters.find(wanted.task_type), wanted.limit or None)
    out.table(_DEAD, found if out.as_json else map(_dead, found))
    return 0


def _dead(task: Task) -> dict[str, Any]:
    why = task.corrupt or (f"{task.error.type}: {task.error.message}" if task.error else "")
    return {
        "task_id": task.task_id,
        "type": task.type,
        "ended_at": task.ended_at,
        "attempt": task.attempt,
        "why": why.replace("\n", " ")[:80],
    }


def retry_dead(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    """Retries dead letters: named ones one by one, up to the first error; with --all, all in one bulk action."""
    patch = patch_of(wanted)
    if wanted.score is not None and (wanted.all or patch):
        raise ValueError("--score is for ids, without a change of the data")
    if patch and not wanted.yes:
        return show_preview(client.bulk_actions.preview("retry", patch=patch, **_meant(wanted)), out)
    if wanted.all or patch:
        return _in_bulk(client, out, "retry", patch=patch, **_meant(wanted))
    for each in _meant(wanted)["task_ids"]:
        done = client.dead_letters.retry(each, score=wanted.score)
        out.value(done) if out.as_json else out.line(f"{done.task_id} {done.status}")
    return 0


def delete_dead(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    """Deletes dead letters: named ones one by one, up to the first error; with --all, all in one bulk action."""
    if wanted.all:
        return _in_bulk(client, out, "delete", **_meant(wanted))
    for each in _meant(wanted)["task_ids"]:
        client.dead_letters.delete(each)
        out.value({"task_id": each, "removed": True}) if out.as_json else out.line(f"{each} removed")
    return 0


def _in_bulk(client: Client, out: Output, action: str, **tasks: Any) -> int:
    """Starts a bulk action and waits for its end; returns 1 if it left some of the dead letters."""
    if client.bulk_actions.preview(action, **tasks).count == 0:
        out.value({"count": 0}) if out.as_json else out.line("none")
        return 0
    started = client.bulk_actions.start(action, rate=MOST_RATE, **tasks)
    out.line(f"bulk action {started.action_id}: {started.what}")
    ended = _ended(client, started)
    left = f", {ended.skipped} left: they have changed, or their batches are stopped" if ended.skipped else ""
    out.value(ended) if out.as_json else out.line(f"{ended.done} of {ended.total} done{left}")
    return int(ended.skipped > 0)


def _ended(client: Client, action: BulkAction) -> BulkAction:
    """Waits until a bulk action has ended. Raises NotInTime when it no longer makes progress."""
    while True:
        try:
            return client.bulk_actions.wait(action.action_id, timeout=WITHOUT_PROGRESS)
        except NotInTime as error:
            before, action = action, client.bulk_actions.get(action.action_id)
            if (action.done, action.skipped) == (before.done, before.skipped):
                text = (
                    f"{error}, and it makes no progress: is a housekeeper running? It continues once there is one; see"
                )
                raise NotInTime(f"{text} firmq bulk show {action.action_id}") from None


def _meant(wanted: argparse.Namespace) -> dict[str, Any]:
    """Returns which dead letters are meant, as the API takes them."""
    if bool(wanted.ids) == wanted.all:
        raise ValueError("which dead letters: give either their ids or --all")
    if wanted.task_type and not wanted.all:
        raise ValueError("--type needs --all")
    if wanted.ids:
        return {"task_ids": wanted.ids}
    return {"status": TaskState.FAILED, "type": wanted.task_type, **filters_of(wanted)}


def move_foreign(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    out.value({"name": wanted.name, "to": wanted.to, "moved": client.queues.move_foreign(wanted.name, wanted.to)})
    return 0


def list_schedules(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    found = iter(client.schedules)
    out.table(_SCHEDULES, found if out.as_json else map(_schedule, found))
    out.left_out(found.unreadable, "firmq schedules delete NAME, then put it again")
    return 0


def _schedule(each: Schedule) -> dict[str, Any]:
    return {
        "name": each.name,
        "type": each.type,
        "when": each.cron or f"every {each.interval} s",
        "next_at": each.next_at,
        "last_due_at": each.last_due_at,
        "paused": each.paused,
    }


def put_schedule(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    more = {"timezone": wanted.timezone, "queue": wanted.queue, "priority": wanted.priority}
    data = read_data(wanted.data)
    out.value(client.schedules.put(wanted.name, wanted.type, data, cron=wanted.cron, interval=wanted.interval, **more))
    return 0


def change_schedule(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    if wanted.change == "delete":
        client.schedules.delete(wanted.name)
        out.value({"name": wanted.name, "removed": True})
    else:
        act = {"show": client.schedules.get, "run": client.schedules.run, "resume": client.schedules.resume}
        out.value(act[wanted.change](wanted.name))
    return 0


def unlock(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    client.locks.unlock(wanted.name, wanted.token, wanted.reason)
    out.value({"name": wanted.name, "unlocked": True})
    return 0


def _lists(part: str, columns: Mapping[str, str]) -> Run:
    """Returns the command that lists all of a part of the client."""

    def run(client: Client, wanted: argparse.Namespace, out: Output) -> int:
        out.table(columns, getattr(client, part).all())
        return 0

    return run


def _does(part: str, method: str, *given: str) -> Run:
    """Returns the command that calls a method with the name and with other arguments, and prints its result."""

    def run(client: Client, wanted: argparse.Namespace, out: Output) -> int:
        done = getattr(getattr(client, part), method)(wanted.name, **{name: getattr(wanted, name) for name in given})
        out.value(done)
        return 0

    return run
