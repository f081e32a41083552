"""Kills all that runs the jobs of one unchanged RQ program: our worker class, RQ's worker and rq-scheduler.

All of them serve the same queues. Afterwards RQ says what became of each job, and the jobs of rq-scheduler's entries
say how often each was enqueued. Schedules of ours are due every second all the time, beside rq-scheduler's own entries.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import Popen
from typing import Any

from rq import Queue
from rq.job import Job
from rq_scheduler import Scheduler

from firmq.shared.domain.schedule import Schedule
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect, text
from firmq.shared.stores.schedules import ScheduleStore
from firmq.worker.executors.process_tree import descendants
from tests.labs.rq_jobs import program
from tests.labs.rq_jobs.laboratory import kill_all
from tests.support.harness import running_system

QUEUES = ("high", "default")
ENTRIES, PERIODIC, OURS = 100, 10, 5
"""Entries of rq-scheduler that are due once, those that repeat, and our schedules of every second."""
EVERY = 5
"""Seconds between two due times of an entry that repeats."""
PATIENCE = 240.0
"""Seconds without any end of a job. RQ looks once a minute for jobs of killed workers, and gives them up after 90 s."""
_GIVEN_UP = ("Moved to FailedJobRegistry", "Work-horse terminated", "AbandonedJobError", "intermediate queue")
"""What RQ writes to jobs whose own worker or whose process was killed: these do not run again with RQ."""
_DUE = "due-{}"


@dataclass(slots=True)
class Findings:
    """What a run has shown."""

    kills: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    """Of the jobs, and of the entries that are due once."""
    repeated: int = 0
    given_up: int = 0
    lost: list[str] = field(default_factory=list)
    """Jobs and entries without an end, with one that no kill explains, or finished without having run."""
    twice: list[str] = field(default_factory=list)
    """Due times of entries that were enqueued more than once."""
    due_times: int = 0
    fired: int = 0
    ended: list[str] = field(default_factory=list)
    """Processes that ended in the quiet part."""
    quiet: float = 0.0

    @property
    def well(self) -> bool:
        # rq-scheduler enqueues a job and moves its entry in two steps: a kill between them is its own defect.
        return not (self.lost or self.ended) and len(self.twice) <= self.kills["rqscheduler"] and self.fired > 0

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {name}" for name, count in sorted(self.kills.items()))
        return (
            f"killed: {kills or 'nothing'}\n"
            f"statuses {dict(self.statuses)}: lost {len(self.lost)} {self.lost[:5] or ''}, given up by RQ "
            f"{self.given_up}, ran more than once {self.repeated}\n"
            f"due times of entries enqueued {self.due_times}, twice {len(self.twice)} {self.twice[:5] or ''}\n"
            f"schedules of every second fired {self.fired} times; in {self.quiet:g} quiet min ended: "
            f"{', '.join(self.ended) or 'nothing'}"
        )


class SideBySide:
    """One run."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.folder = folder
        self.jobs = jobs
        self.notes = folder / "notes"
        self.notes.touch()
        self.found = Findings()
        self.running: dict[str, Popen[bytes]] = {}
        self.taken: set[str] = set()
        """Jobs that RQ's worker had taken out of their list when it was killed: RQ forgets them, or judges later."""

    def run(self, kills: int, minutes: float) -> Findings:
        """Enqueues and kills, waits until all has ended, and lets everything run in peace for some minutes."""
        with (
            EmbeddedRedis(data_dir=self.folder / "redis") as self.server,
            connect(self.server.url, timeout=5) as self.redis,
            running_system(
                self.redis, self.server.url, self.folder, RQ_LAB_NOTES=str(self.notes), MAX_CRASHES="100"
            ) as self.system,
        ):
            self.schedules = ScheduleStore(self.system.scripts)
            self._create_entries(kills)
            for at in range(kills + 1):
                self._enqueue(range(self.jobs * at // (kills + 1), self.jobs * (at + 1) // (kills + 1)))
                self._let_run(random.uniform(1, 5) if kills else 0)
                if at < kills:
                    self._kill()
            self._wait()
            self._let_run(minutes * 60, self.found.ended)
            self.found.quiet = minutes
            return self._judged()

    # --- the program ---

    def _enqueue(self, numbers: range) -> None:
        for name, part in zip(QUEUES, (numbers[::2], numbers[1::2]), strict=True):
            queue = Queue(name, connection=self.redis)
            queue.enqueue_many(
                Queue.prepare_data(
                    program.slow, (number,), job_id=program.job_id(number), result_ttl=program.KEPT, failure_ttl=-1
                )
                for number in part
            )

    def _create_entries(self, kills: int) -> None:
        now, over = datetime.now(UTC).replace(tzinfo=None), 5.0 + 3 * kills
        for at in range(ENTRIES):
            when, about = now + timedelta(seconds=over * at / ENTRIES), {"queue_name": QUEUES[at % 2]}
            kept: Any = {"job_id": _DUE.format(at), "job_result_ttl": program.KEPT, **about}
            self._scheduler().enqueue_at(when, program.of_entry, _DUE.format(at), **kept)
        for at in range(PERIODIC):
            name, queue = f"{'cron' if at % 2 else 'interval'}-{at}", QUEUES[at // 2 % 2]
            if at % 2:
                # Seven fields: the first one counts seconds.
                cron = f"*/{EVERY} * * * * * *"
                self._scheduler().cron(cron, program.of_entry, args=[name], id=name, queue_name=queue)
            else:
                self._scheduler().schedule(now, program.of_entry, [name], interval=EVERY, id=name, queue_name=queue)
        for at in range(OURS):
            self.schedules.put(Schedule(name=f"ours-{at}", type="noop", data="null", queue="normal", interval=1))

    def _scheduler(self) -> Scheduler:
        return Scheduler("default", connection=self.redis)

    # --- its processes ---

    def _start(self, name: str) -> Popen[bytes]:
        url = ("--url", self.server.url)
        if name == "rqscheduler":
            return self.system.start("rq_scheduler.scripts.rqscheduler", *url, "-i", "1", "--quiet")
        worker_class = "firmq.rq.Worker" if name == "ours" else "rq.Worker"
        return self.system.start("rq.cli", "worker", *url, "-w", worker_class, "--quiet", *QUEUES)

    def _let_run(self, seconds: float, ended: list[str] | None = None) -> None:
        """Starts again what has ended, until the time is over; notes it where nothing was to end."""
        until = time.monotonic() + seconds
        while True:
            for name in ("ours", "stock", "rqscheduler"):
                process = self.running.get(name)
                if process is None or process.poll() is not None:
                    if process is not None and ended is not None:
                        ended.append(f"{name} with status {process.returncode}")
                    self.running[name] = self._start(name)
            if time.monotonic() >= until:
                return
            time.sleep(0.2)

    def _kill(self) -> None:
        """Kills one of the commands with all below it, or one process below it alone."""
        name = random.choice(("ours", "ours", "stock", "rqscheduler"))
        below = descendants(self.running[name].pid)
        if below and random.random() < 0.5:
            with suppress(ProcessLookupError):
                os.kill(random.choice(below), signal.SIGKILL)
            name = f"process below {name}"
        else:
            kill_all(self.running[name])
            self.taken |= self._in_no_list() if name == "stock" else set()
        self.found.kills[name] += 1

    def _in_no_list(self) -> set[str]:
        """Returns jobs that wait or have begun and that no worker of ours has, nor any list."""
        with self.redis.pipeline(transaction=False) as pipeline:
            for each in self._ids():
                pipeline.hget(Job.key_for(each), "status")
            waiting = {
                each
                for each, status in zip(self._ids(), pipeline.execute(), strict=True)
                if status in (b"queued", b"started")  # RQ judges one that has begun after its time limit only
            }
        listed = {job for name in QUEUES for job in Queue(name, connection=self.redis).job_ids}
        adopted = {text(value).split()[1] for value in self.redis.hvals(self.system.scripts.keys.RQ_ADOPTED)}
        return waiting - listed - adopted

    def _wait(self) -> None:
        """Waits until all jobs have ended, or none has for long."""
        ended, since = -1, time.monotonic()
        most = self.jobs + ENTRIES
        while ended + len(self.taken & self._in_no_list()) < most and time.monotonic() - since < PATIENCE:
            if (now := sum(self._statuses()[each] for each in ("finished", "failed"))) != ended:
                ended, since = now, time.monotonic()
            self._let_run(1)

    # --- its end ---

    def _ids(self) -> list[str]:
        return [*map(program.job_id, range(self.jobs)), *map(_DUE.format, range(ENTRIES))]

    def _statuses(self) -> Counter[str]:
        with self.redis.pipeline(transaction=False) as pipeline:
            for each in self._ids():
                pipeline.hget(Job.key_for(each), "status")
            return Counter((status or b"gone").decode() for status in pipeline.execute())

    def _judged(self) -> Findings:
        found, ran = self.found, self._noted("ran")
        entries = Counter(self._noted("entry").keys())
        found.statuses = self._statuses()
        begun = Counter({program.job_id(int(number)): many for number, many in ran.items()})
        begun.update({each.split()[0]: 1 for each in entries})
        forgotten = self.taken & self._in_no_list()
        for each, job in zip(self._ids(), Job.fetch_many(self._ids(), connection=self.redis), strict=True):
            status = str(job.get_status(refresh=False).value) if job else "gone"
            is_given_up = status == "failed" and job and any(reason in str(job.exc_info) for reason in _GIVEN_UP)
            if is_given_up or each in forgotten:
                found.given_up += 1
            elif status != "finished" or not begun[each]:
                found.lost.append(f"{each} {status}")
        found.repeated = sum(many > 1 for many in ran.values())
        times = Counter(due_times(entries))
        found.due_times = len(times)
        found.twice = [each for each, many in times.items() if many > 1]
        found.fired = sum(self.schedules.get(f"ours-{at}").fired for at in range(OURS))
        return found

    def _noted(self, what: str) -> Counter[str]:
        lines = (line.partition(" ") for line in self.notes.read_text().splitlines())
        return Counter(about for noted, _, about in lines if noted == what)


def due_times(noted: Iterable[str]) -> Iterator[str]:
    """Yields entry and due time of each job, from its entry's name and the time when it was enqueued.

    However late that is, the next due time of a cron string is a later one; that of an interval follows after it.
    """
    before: dict[str, float] = {}
    for name, at in sorted((name, float(at)) for name, at in map(str.split, noted)):
        if name.startswith("interval"):
            # The next time of an entry is in whole seconds.
            before[name] = at if at - before.get(name, 0.0) >= EVERY - 1 else before[name]
        else:
            before[name] = at // EVERY if name.startswith("cron") else 0
        yield f"{name} {before[name]:.3f}"
