"""A task on a terminal: its fields, then its steps, webhook deliveries and attempts with error and log lines."""

from __future__ import annotations

import json
from dataclasses import asdict

from firmq.shared.cli.output import Output, columns
from firmq.shared.client import Attempt, Error, TaskDetail

_STEPS = columns("name STEP, kind, attempt, tries, started_at STARTED, seconds S")
_DELIVERIES = columns("task_id DELIVERY, status, attempts, ended_at ENDED")
_LONGEST = 100
"""Maximum characters of JSON on one line."""


def show_task(task: TaskDetail, out: Output) -> None:
    """Prints a task for people."""
    fields = asdict(task)
    for name in ("data", "result", "attempts", "steps", "deliveries"):
        del fields[name]
    fields["depends_on"] = ", ".join(f"{each.task_id} ({each.on})" for each in task.depends_on)
    for name in ("dependents", "tags", "warnings"):
        fields[name] = ", ".join(fields[name])
    fields["error"] = f"{task.error.type}: {task.error.message}" if task.error else None
    fields["webhook"] = task.webhook.url if task.webhook else None
    fields["progress"] = f"{task.progress.fraction:.0%} {task.progress.message}" if task.progress else None
    out.value({name: value for name, value in fields.items() if value not in (0, False)})
    for name, value in (("data", task.data), ("result", task.result)):
        short = json.dumps(value, ensure_ascii=False)
        if value is not None:
            _section(out, name, short if len(short) <= _LONGEST else json.dumps(value, ensure_ascii=False, indent=2))
    for name, titles, rows in (("steps", _STEPS, task.steps), ("deliveries", _DELIVERIES, task.deliveries)):
        if rows:
            _section(out, name, "")
            out.table(titles, rows)
    for attempt in task.attempts:
        _section(out, _title(attempt), "\n".join([_said(attempt.error), *attempt.logs]))


def _title(attempt: Attempt) -> str:
    began = f"{attempt.started_at.astimezone():%Y-%m-%d %H:%M:%S}" if attempt.started_at else "not started"
    took = "" if attempt.run_seconds is None else f", {attempt.run_seconds:.3g} s"
    again = "" if attempt.retry_delay_seconds is None else f", again after {attempt.retry_delay_seconds:g} s"
    return f"attempt {attempt.number}: {attempt.outcome or 'running'}, {began}{took}, on {attempt.worker}{again}"


def _said(error: Error | None) -> str:
    return (error.traceback or f"{error.type}: {error.message}").rstrip() if error else ""


def _section(out: Output, title: str, text: str) -> None:
    out.line("")
    out.line(title)
    for line in text.strip("\n").splitlines():
        out.line(f"  {line}")
