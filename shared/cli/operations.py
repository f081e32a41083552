"""Commands for operators: dead letters, queues, task types, schedules, the audit record, the timeline, locks."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime, time, timedelta
from itertools import islice
from typing import Any

from firmq.shared.cli.arguments import add_limit, command, moment
from firmq.shared.cli.bulk import add_change, add_place, filters_of, patch_of, show_preview
from firmq.shared.cli.data import read_data
from firmq.shared.cli.output import Output, columns
from firmq.shared.client import BulkAction, Client, NotInTime, Schedule, Task, TaskState

MOST_RATE = 5000
"""Tasks per second: as fast as the API allows."""
WITHOUT_PROGRESS = 10.0
"""Seconds after which a bulk action that processes no task is no longer waited for."""
Run = Callable[[Client, argparse.Namespace, Output], int | None]

_DEAD = columns("task_id TASK, type, ended_at FAILED, attempt ATTEMPTS, why")
_QUEUES = columns("name QUEUE, weight, pending, scheduled, retrying, foreign, paused, paused_reason WHY")
_TYPES = columns("name TYPE, live, versions, last_seen_at LAST SEEN, paused, paused_reason WHY, paused_until UNTIL")
_SCHEDULES = columns("name SCHEDULE, type, when, next_at NEXT, last_due_at LAST, paused")
_AUDIT = columns("at WHEN, who, what ACTION, about OBJECT, detail")
_TIMELINE = columns("at WHEN, kind, title EVENT, detail")
_WORKERS = columns("name WORKER, state, active RUNS, slots, held, completed, failed, app_version VERSION, reason WHY")
_LIMITS = columns("name LIMIT, concurrency AT ONCE, rate, burst, running, waiting, source")
_LOCKS = columns("name LOCK, locked, owner, remaining_time MS LEFT, fencing_token TOKEN")


def add_commands(commands: Any) -> None:
    """Adds the commands to the parser."""
    _add_dead_letters(add_group(commands, "dlq", "dead letters: list, retry, delete"))
    _add_queues(add_group(commands, "queues", "queues: list, pause, resume, empty, move-foreign"))
    _add_types(add_group(commands, "types", "task types: list, show, pause, resume"))
    _add_schedules(add_group(commands, "schedules", "schedules: list, put, run, pause, resume, delete"))
    _add_audit(commands)
    _add_timeline(commands)
    command(
        commands, "workers", "list workers: live ones, then those lost in the last week", _lists("workers", _WORKERS)
    )
    _add_limits(add_group(commands, "limits", "limits of types and limit keys: list, set, clear"))
    _add_locks(add_group(commands, "locks", "locks of housekeeping: list, unlock"))


def add_group(commands: Any, name: str, text: str) -> Any:
    """Adds a group of commands and returns it."""
    group = commands.add_parser(name, help=text)
    return group.add_subparsers(title="commands", metavar="COMMAND", required=True)


def _add_dead_letters(group: Any) -> None:
    lists = command(group, "list", "list dead letters, latest failure first", list_dead)
    lists.add_argument("--type", dest="task_type")
    add_limit(lists)
    retries = command(group, "retry", "retry dead letters", retry_dead)
    deletes = command(group, "delete", "delete dead letters", delete_dead)
    for one in (retries, deletes):
        one.add_argument("ids", nargs="*", metavar="ID")
        one.add_argument("--all", action="store_true", help="all current dead letters, or all of --type")
        add_place(one)
        one.add_argument("--type", dest="task_type")
    retries.add_argument("--score", type=float, metavar="N", help="new order in the queue, the lower the sooner")
    add_change(retries)
    text = "with a change of the data: retry; else show the change"
    retries.add_argument("--yes", action="store_true", help=text)


def _add_queues(group: Any) -> None:
    command(group, "list", "list queues, highest weight first", _lists("queues", _QUEUES))
    pause, resume = _does("queues", "pause", "reason", "until"), _does("queues", "resume")
    _add_pause(command(group, "pause", "pause a queue: workers claim nothing more from it", pause, "name"))
    command(group, "resume", "resume a queue: workers claim from it again", resume, "name")
    run = _does("queues", "empty", "rate", "reason")
    empties = command(group, "empty", "cancel all waiting tasks of a queue, in the background", run, "name")
    empties.add_argument("--rate", type=int, help="tasks per second (default: 100)")
    empties.add_argument("--reason")
    moves = command(group, "move-foreign", "move foreign jobs of RQ programs to a queue of RQ", move_foreign, "name")
    moves.add_argument("--to", required=True, metavar="QUEUE", help="a queue that an RQ worker serves")


def _add_types(group: Any) -> None:
    command(group, "list", "list the task types that workers have published", _lists("types", _TYPES))
    command(group, "show", "show a task type with the schema of its data", _does("types", "get"), "name")
    pause, resume = _does("types", "pause", "reason", "until"), _does("types", "resume")
    _add_pause(command(group, "pause", "pause a task type: workers start none of its tasks", pause, "name"))
    command(group, "resume", "resume a task type: workers start its tasks again", resume, "name")


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
    command(group, "list", "list schedules by name", list_schedules)
    puts = command(group, "put", "create or replace a schedule", put_schedule, "name", "type")
    puts.add_argument("data", nargs="?", help="as for submit")
    when = puts.add_mutually_exclusive_group(required=True)
    when.add_argument("--cron")
    when.add_argument("--interval", type=int, metavar="SECONDS")
    for name in ("--timezone", "--queue", "--priority"):
        puts.add_argument(name)
    for name, run, text in (
        ("show", _does("schedules", "get"), "show a schedule"),
        ("run", _does("schedules", "run"), "create a task of a schedule now"),
        ("resume", _does("schedules", "resume"), "resume a schedule"),
        ("delete", _removes("schedules", "delete"), "delete a schedule"),
    ):
        command(group, name, text, run, "name")
    pauses = command(group, "pause", "pause a schedule", _does("schedules", "pause", "reason"), "name")
    pauses.add_argument("--reason", required=True)


def _add_limits(group: Any) -> None:
    command(group, "list", "list the limits in force, with their use", _lists("limits", _LIMITS))
    run = _does("limits", "set", "concurrency", "rate", "burst")
    sets = command(group, "set", "set a limit, at once and on all workers", run)
    sets.add_argument("name", help="type:NAME, or key:NAME for tasks with this limit key")
    sets.add_argument("--concurrency", type=int, metavar="N", help="maximum tasks that run at once")
    sets.add_argument("--rate", help="maximum starts per time, such as 10/s, 100/m or 1/10s")
    sets.add_argument("--burst", type=float, metavar="N", help="maximum starts at once after a pause")
    text = "remove a limit that was set; a declared one applies again"
    command(group, "clear", text, _removes("limits", "clear")).add_argument("name", help="type:NAME or key:NAME")


def _add_locks(group: Any) -> None:
    command(group, "list", "list locks by name", _lists("locks", _LOCKS))
    unlocks = command(group, "unlock", "release a lock by force, in an emergency", unlock, "name")
    unlocks.add_argument("--token", required=True, help="fencing token of the holder, as shown by list")
    unlocks.add_argument("--reason", required=True)


def _add_audit(commands: Any) -> None:
    audit = command(commands, "audit", "list the changes that people and clients made, newest first", list_audit)
    for name, text in (("who", "client, key or user"), ("what", "action"), ("about", "object, such as a task")):
        audit.add_argument(f"--{name}", help=f"a part of the {text}")
    for name in ("since", "until"):
        audit.add_argument(f"--{name}", type=moment, metavar="TIME", help="such as 2030-01-31T12:00:00Z")
    add_limit(audit)


def list_audit(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    filters = {name: getattr(wanted, name) for name in ("who", "what", "about", "since", "until")}
    out.table(_AUDIT, islice(client.audit(**filters), wanted.limit or None))


def _add_timeline(commands: Any) -> None:
    text = "list deploys, alerts, pauses, lost workers and changes by people"
    timeline = command(commands, "timeline", text, list_timeline)
    for name, default in (("since", "six hours earlier"), ("until", "now")):
        timeline.add_argument(f"--{name}", type=moment, metavar="TIME", help=f"default: {default}")


def list_timeline(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    """Prints the events of a range, the earliest first, and the gaps."""
    found = client.timeline(since=wanted.since, until=wanted.until)
    if out.as_json:
        out.value(found)
        return
    out.table(_TIMELINE, found.events)
    for each in found.incomplete:
        out.line(each)


def list_dead(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    found = islice(client.dead_letters.find(wanted.task_type), wanted.limit or None)
    out.table(_DEAD, found if out.as_json else map(_dead, found))


def _dead(task: Task) -> dict[str, Any]:
    why = task.corrupt or (f"{task.error.type}: {task.error.message}" if task.error else "")
    return {**asdict(task), "why": why.replace("\n", " ")[:80]}


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
        out.ended(client.dead_letters.retry(each, score=wanted.score))
    return 0


def delete_dead(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    """Deletes dead letters: named ones one by one, up to the first error; with --all, all in one bulk action."""
    if wanted.all:
        return _in_bulk(client, out, "delete", **_meant(wanted))
    for each in _meant(wanted)["task_ids"]:
        client.dead_letters.delete(each)
        out.either({"task_id": each, "removed": True}, f"{each} removed")
    return 0


def _in_bulk(client: Client, out: Output, action: str, **tasks: Any) -> int:
    """Starts a bulk action and waits for its end; returns 1 if it left some of the dead letters."""
    if client.bulk_actions.preview(action, **tasks).count == 0:
        out.either({"count": 0}, "none")
        return 0
    started = client.bulk_actions.start(action, rate=MOST_RATE, **tasks)
    out.line(f"bulk action {started.action_id}: {started.what}")
    ended = _ended(client, started)
    left = f", {ended.skipped} left: they have changed, or their batches are stopped" if ended.skipped else ""
    out.either(ended, f"{ended.done} of {ended.total} done{left}")
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


def move_foreign(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    out.value({"name": wanted.name, "to": wanted.to, "moved": client.queues.move_foreign(wanted.name, wanted.to)})


def list_schedules(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    found = iter(client.schedules)
    out.table(_SCHEDULES, found if out.as_json else map(_schedule, found))
    out.left_out(found.unreadable, "firmq schedules delete NAME, then put it again")


def _schedule(each: Schedule) -> dict[str, Any]:
    return {**asdict(each), "when": each.cron or f"every {each.interval} s"}


def put_schedule(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    more = {"timezone": wanted.timezone, "queue": wanted.queue, "priority": wanted.priority}
    data = read_data(wanted.data)
    out.value(client.schedules.put(wanted.name, wanted.type, data, cron=wanted.cron, interval=wanted.interval, **more))


def unlock(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    client.locks.unlock(wanted.name, wanted.token, wanted.reason)
    out.value({"name": wanted.name, "unlocked": True})


def _lists(part: str, columns: Mapping[str, str]) -> Run:
    """Returns the command that lists all of a part of the client."""

    def run(client: Client, wanted: argparse.Namespace, out: Output) -> None:
        out.table(columns, getattr(client, part).all())

    return run


def _does(part: str, method: str, *given: str) -> Run:
    """Returns the command that calls a method with the name and with other arguments, and prints its result."""

    def run(client: Client, wanted: argparse.Namespace, out: Output) -> None:
        out.value(_call(client, part, method, wanted, *given))

    return run


def _removes(part: str, method: str) -> Run:
    """Returns the command that calls a method with the name, which removes what has it."""

    def run(client: Client, wanted: argparse.Namespace, out: Output) -> None:
        _call(client, part, method, wanted)
        out.value({"name": wanted.name, "removed": True})

    return run


def _call(client: Client, part: str, method: str, wanted: argparse.Namespace, *given: str) -> Any:
    return getattr(getattr(client, part), method)(wanted.name, **{name: getattr(wanted, name) for name in given})
