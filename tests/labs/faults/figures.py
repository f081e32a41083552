"""What a run amounts to: tasks, faults of each kind, attempts, and how fast work went on after each fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.labs.faults.case import SECOND, Case
from tests.labs.faults.faults import Happened
from tests.labs.faults.judges import UNBEGUN
from tests.labs.faults.ledger import Execution

BAR = 15.0
"""Seconds from the end of a fault in which what it touched must go on."""
NEXT_TURN = 60.0
"""Seconds from the end of a fault in which each attempt that it cut short must have been followed by the next.

A thousand of them at once run one by one, as each may have been what killed its worker, through relays that take
most of the time; without relays a worker with two executors runs about a thousand such tasks a second.
"""


@dataclass
class Figures:
    """One run, to be printed and kept."""

    seed: int
    seconds: float
    tasks: int
    accepted: int
    refused: int
    unanswered: int
    executions: int
    ends: dict[str, int]
    attempts: dict[str, int]
    faults: dict[str, int]
    recoveries: int
    slowest_recovery: float
    slowest_after: str
    slowest_restart: float
    stalls: int
    lost: int
    invented: int
    stuck: int
    complaints: dict[str, list[str]] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return not self.complaints

    @property
    def fault_count(self) -> int:
        return sum(self.faults.values())


def figures_of(case: Case, complaints: Mapping[str, list[str]], recoveries: Sequence[tuple[str, float]]) -> Figures:
    run = case.run
    said = Counter(asked.said or "unanswered" for asked in run.ledger.asked.values())
    after, slowest = max(recoveries, key=lambda each: each[1], default=("", 0.0))
    outcomes = Counter(attempt["outcome"] for task in case.tasks.values() for attempt in task["attempts"])
    return Figures(
        seed=run.seed,
        seconds=round(run.seconds, 1),
        tasks=len(case.tasks),
        accepted=said["accepted"] + said["follows"],
        refused=said["refused"] + said["existing"],
        unanswered=said["unanswered"],
        executions=sum(map(len, case.executions.values())),
        ends=dict(Counter(task["status"] for task in case.tasks.values())),
        attempts=dict(outcomes),
        faults=dict(sorted(Counter(each.name for each in run.happened).items())),
        recoveries=len(recoveries),
        slowest_recovery=round(slowest, 2),
        slowest_after=after,
        slowest_restart=round(slowest_restart_of(case), 2),
        stalls=len(run.stalls),
        lost=len([task_id for task_id in run.ledger.accepted if task_id not in case.tasks]),
        invented=len(complaints.get("nothing is invented", [])),
        stuck=run.stuck.total(),
        complaints=dict(complaints),
    )


# --- Recoveries ----------------------------------------------------------------------------------------------------


def recoveries_of(case: Case) -> list[tuple[str, float]]:
    """For each fault after which something could be seen: its name, and the seconds until work went on.

    After a fault of a worker: until the last attempt that it hit was ended on record, or its lease taken away. After
    one of a gateway: until a task was accepted. After any other: until a task completed; no work hangs on a dashboard.
    """
    return _each_fault(case, _Measure(case).until)


def slowest_restart_of(case: Case) -> float:
    """Seconds until the last attempt that a fault of a worker cut short was followed by the next."""
    return max((seconds for _, seconds in _each_fault(case, _Measure(case).until_restart)), default=0.0)


def _each_fault(case: Case, measure: Callable[[Happened], float | None]) -> list[tuple[str, float]]:
    found = ((each, measure(each)) for each in case.run.happened)
    return [
        (each.name, max(0.0, at - _held_up(case, each.end_ns, each.end_ns + at)) / SECOND)
        for each, at in found
        if at is not None
    ]


def _held_up(case: Case, begin: float, end: float) -> float:
    """Nanoseconds between these moments in which a fault let nobody go on."""
    return sum(
        max(0.0, min(end, each.end_ns) - max(begin, each.begin_ns)) for each in case.run.happened if each.holds_up
    )


class _Measure:
    def __init__(self, case: Case) -> None:
        self.case = case
        asked = case.run.ledger.asked.values()
        self.accepted = sorted(each.told_ns for each in asked if each.said == "accepted")
        self.completed = sorted(
            each.last_ns for runs in case.executions.values() for each in runs if each.end == "complete"
        )

    def until(self, fault: Happened) -> float | None:
        """Nanoseconds from its end."""
        touched = self._touched(fault)
        if touched:
            return self._latest(self._taken_back(*each) for each in touched) - fault.end_ns
        if fault.victim.startswith("gateway"):
            return _first_after(fault.end_ns, self.accepted)
        if fault.victim.startswith("dashboard"):
            return None
        return _first_after(fault.end_ns, self.completed)

    def until_restart(self, fault: Happened) -> float | None:
        """The same until the last of the attempts that it cut short was followed by another; a crowd waits its turn."""
        touched = [each for each in self._touched(fault) if self._cut_short(*each)]
        return self._latest(self._next_start(*each) for each in touched) - fault.end_ns if touched else None

    def _touched(self, fault: Happened) -> list[tuple[str, int]]:
        """Attempts that went on in a process that the fault was about, or whose lease it was about."""
        if fault.tasks:
            return [(task_id, 1) for task_id in fault.tasks]
        if not fault.victim.startswith("worker"):
            return []
        runs = (each for runs in self.case.executions.values() for each in runs)
        return [(each.task_id, each.attempt) for each in runs if _touches(fault, each)]

    def _taken_back(self, task_id: str, number: int) -> int | None:
        """When the outcome of an attempt was written, or its lease was taken from who held it."""
        for attempt in self._attempts(task_id):
            if attempt["number"] == number and attempt["ended_at"]:
                return self.case.monotonic(attempt["ended_at"])
        return None

    def _cut_short(self, task_id: str, number: int) -> bool:
        return any(each["number"] == number and each["outcome"] in UNBEGUN for each in self._attempts(task_id))

    def _attempts(self, task_id: str) -> Iterable[Mapping[str, Any]]:
        """None of a task that is gone: a judge complains of it."""
        return self.case.tasks[task_id]["attempts"] if task_id in self.case.tasks else ()

    def _next_start(self, task_id: str, number: int) -> int | None:
        starts = [each.start_ns for each in self.case.executions.get(task_id, ()) if each.attempt > number]
        return min(starts, default=None)

    @staticmethod
    def _latest(moments: Iterable[int | None]) -> int:
        return max((each for each in moments if each is not None), default=0)


def _touches(fault: Happened, execution: Execution) -> bool:
    ours = execution.pid in fault.pids or execution.worker in fault.pids
    return ours and execution.start_ns <= fault.end_ns and (not execution.end or execution.last_ns >= fault.begin_ns)


def _first_after(moment: int, moments: Sequence[int]) -> float | None:
    later = [each for each in moments if each > moment]
    return min(later) - moment if later else None


# --- On paper ------------------------------------------------------------------------------------------------------


def shown(figures: Figures) -> str:
    """For people."""
    told = f"{figures.accepted} accepted, {figures.refused} refused, {figures.unanswered} never answered"
    wrong = f"lost {figures.lost}, invented {figures.invented}, stuck {figures.stuck}"
    lines = [
        f"seed {figures.seed}: {figures.tasks} tasks in {figures.seconds:.0f} s; {told}",
        f"  ended: {_listed(figures.ends)}",
        f"  {figures.executions} handlers begun; attempts on record: {_listed(figures.attempts)}",
        f"  {figures.fault_count} faults: {_listed(figures.faults)}",
        f"  {figures.recoveries} recoveries, slowest {figures.slowest_recovery:.2f} s after: {figures.slowest_after}",
        f"  slowest next attempt after a fault: {figures.slowest_restart:.2f} s",
        f"  {wrong}; the machine stood still {figures.stalls} times",
    ]
    for promise, complaints in figures.complaints.items():
        lines.append(f"  BROKEN: {promise} ({len(complaints)})")
        lines += [f"    - {each}" for each in complaints[:5]]
    return "\n".join(lines)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))


def keep(figures: Figures, folder: Path) -> Path:
    """Writes them where `table` finds them."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed-{figures.seed}.json"
    path.write_text(json.dumps(asdict(figures), indent=1) + "\n")
    return path


def table(runs: Sequence[Figures]) -> str:
    """One line a seed, for a README."""
    head = "| seed | minutes | tasks | faults | attempts | cut short | lost | invented | stuck | slowest recovery | "
    head += "slowest next turn |"
    rows = [
        f"| {run.seed} | {run.seconds / 60:.1f} | {run.tasks:,} | {run.fault_count} | {sum(run.attempts.values()):,} | "
        f"{_cut_short(run):,} | {run.lost} | {run.invented} | {run.stuck} | {run.slowest_recovery:.1f} s | "
        f"{run.slowest_restart:.1f} s |"
        for run in runs
    ]
    return "\n".join([head, "|---" * 11 + "|", *rows])


def _cut_short(run: Figures) -> int:
    return sum(run.attempts.get(outcome, 0) for outcome in ("lost", "crashed", "interrupted"))


def read(paths: Iterable[Path]) -> list[Figures]:
    return sorted((Figures(**json.loads(path.read_text())) for path in paths), key=lambda each: each.seed)
