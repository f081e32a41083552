"""The measurements. Each runs one workload on one system once and returns named numbers; README.md has the reasons."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.labs.bench import processes
from tests.labs.bench.stage import Agent, Setup, Stage, staged

Metrics = dict[str, float]

WARM_SHARE = 0.1
WARM_CALLS = 20
FEW_TASKS = 200
QUIET_SECONDS = 1.0
START_SECONDS = 60.0
SLOWEST_RATE = 25.0
BUSY_SECONDS = 0.010
FAST_SECONDS = 0.001
SLOW_SECONDS = 2.0
FAST_RATE = 50
SLOW_EVERY = 2.5
SLOTS = 1000
NAP_SECONDS = 0.1
LONG_NAP_SECONDS = 1.0
LONG_NAP_RATE = 500


FEWER = {"rq_fork": 10, "rq_simple": 4, "arq": 2, "celery": 2}
"""Systems that drain so many times fewer empty tasks: with all of them they would take most of the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of each workload to run."""

    tasks: int = 20_000
    busy_tasks: int = 2_000
    memory_tasks: int = 2_000
    waiting_tasks: int = 20_000
    rate: int = 100
    idle_seconds: float = 10.0
    mixed_seconds: float = 15.0
    occupied_seconds: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Everything that is read at the beginning and at the end of the measured part."""

    at: float
    begun: int
    worker_cpu: float
    redis_cpu: float
    machine_cpu: float
    commands: int
    reads: int


def observe(stage: Stage, at: float | None = None) -> Moment:
    """Time and count first: reading the rest takes a few milliseconds in which work goes on."""
    now, begun = at or time.time(), stage.sheet.begun()
    worker_cpu = processes.cpu_seconds(stage.worker_pids())
    redis_cpu = processes.cpu_seconds([stage.redis.process.pid])
    machine_cpu, info = processes.machine_busy_seconds(), stage.redis.info()
    return Moment(
        at=now,
        begun=begun,
        worker_cpu=worker_cpu,
        redis_cpu=redis_cpu,
        machine_cpu=machine_cpu,
        commands=int(info["total_commands_processed"]),
        reads=int(info["total_reads_processed"]),
    )


def between(first: Moment, last: Moment) -> Metrics:
    """Rates and costs a task over the measured part."""
    done, seconds = last.begun - first.begun, last.at - first.at
    workers, redis = last.worker_cpu - first.worker_cpu, last.redis_cpu - first.redis_cpu
    others = last.machine_cpu - first.machine_cpu - workers - redis
    return {
        "seconds": seconds,
        "tasks_per_second": done / seconds,
        "cpu_per_1000": 1000 * (workers + redis) / done,
        "worker_cpu_per_1000": 1000 * workers / done,
        "redis_cpu_per_1000": 1000 * redis / done,
        "commands_per_task": (last.commands - first.commands) / done,
        "reads_per_task": (last.reads - first.reads) / done,
        "other_cores_busy": max(0.0, others / seconds),
    }


def enqueue(stage: Stage, count: int, kind: str, *args: Any, first: int = 0) -> tuple[float, list[list[str]]]:
    """Enqueue with an agent that is gone before the workers start: a producer's open connections cost Redis, too."""
    with stage.agent() as agent:
        commands = agent.ask("describe")["workers"]
        taken = agent.ask("enqueue", timeout=time_limit(count), kind=kind, first=first, count=count, args=args)
    return float(taken["seconds"]), commands


def work_off(stage: Stage, count: int, commands: list[list[str]]) -> tuple[Moment, Moment]:
    """Start the workers and measure from the tenth part of the tasks to the last one recorded as done."""
    with stage.agent() as watcher:
        watcher.ask("describe")  # its imports are over before the measuring begins
        stage.start_workers(commands)
        stage.wait_for(max(1, int(count * WARM_SHARE)), START_SECONDS + time_limit(count))
        first = observe(stage)
        stage.wait_for(count, time_limit(count))
        settled = watcher.ask("settle", enqueued=count)["at"]
        return first, observe(stage, at=max(settled, *stage.sheet.started))


def time_limit(count: int) -> float:
    return 30.0 + count / SLOWEST_RATE


def drain(setup: Setup, sizes: Sizes, system: str, *, kept: bool) -> Metrics:
    """Empty tasks, all enqueued before the first worker starts."""
    tasks = sizes.tasks // FEWER.get(system, 1)
    with staged(setup, system, tasks=tasks, kept=kept) as stage:
        seconds, commands = enqueue(stage, tasks, "empty")
        first, last = work_off(stage, tasks, commands)
        rss, pss = processes.memory(stage.worker_pids())
        return {
            **between(first, last),
            "enqueued_per_second": tasks / seconds,
            "rss": rss,
            "pss": pss,
            "repeated": stage.sheet.repeated(),
        }


def drain_kept(setup: Setup, sizes: Sizes, system: str) -> Metrics:
    return drain(setup, sizes, system, kept=True)


def drain_discarded(setup: Setup, sizes: Sizes, system: str) -> Metrics:
    return drain(setup, sizes, system, kept=False)


def busy(setup: Setup, sizes: Sizes, system: str) -> Metrics:
    """Tasks that compute; ideal is what as many cores as there are worker processes would need for them alone."""
    count = sizes.busy_tasks
    with staged(setup, system, tasks=count) as stage:
        _, commands = enqueue(stage, count, "spin", BUSY_SECONDS)
        first, last = work_off(stage, count, commands)
        metrics = between(first, last)
        ideal = (last.begun - first.begun) * BUSY_SECONDS / setup.processes
        return {**metrics, "ideal_seconds": ideal, "times_ideal": metrics["seconds"] / ideal}


def idle(setup: Setup, sizes: Sizes, system: str) -> Metrics:
    """Single submissions at a steady rate to workers that have nothing else to do."""
    count = int(sizes.rate * sizes.idle_seconds)
    plan = [[n / sizes.rate, "empty", [WARM_CALLS + n]] for n in range(count)]
    with staged(setup, system, tasks=WARM_CALLS + count) as stage, stage.agent() as agent:
        warm_up(stage, agent)
        late = play(stage, agent, plan)
        return {**waits(stage.sheet.waits(range(WARM_CALLS, WARM_CALLS + count))), "submitter_late": late}


def mixed(setup: Setup, sizes: Sizes, system: str) -> Metrics:
    """Short tasks at a steady rate, and one long one at a time: a worker process is free for the short ones."""
    plan = mixed_plan(sizes.mixed_seconds)
    fast = int(sizes.mixed_seconds * FAST_RATE)
    with staged(setup, system, tasks=WARM_CALLS + len(plan)) as stage, stage.agent() as agent:
        warm_up(stage, agent)
        late = play(stage, agent, plan)
        numbers = stage.sheet.waits(range(WARM_CALLS, WARM_CALLS + fast))
        behind = sum(1 for wait in numbers if wait > SLOW_SECONDS / 10)
        return {**waits(numbers), "behind_slow": behind / len(numbers), "submitter_late": late}


def mixed_plan(seconds: float) -> list[list[Any]]:
    """The fast ones get the first numbers, so that their waits are one range of the sheet."""
    fast, slow = int(seconds * FAST_RATE), int(seconds / SLOW_EVERY)
    plan: list[list[Any]] = [[n / FAST_RATE, "spin", [WARM_CALLS + n, FAST_SECONDS]] for n in range(fast)]
    plan += [[0.2 + n * SLOW_EVERY, "nap", [WARM_CALLS + fast + n, SLOW_SECONDS]] for n in range(slow)]
    return sorted(plan, key=lambda entry: float(entry[0]))


def waiting(setup: Setup, sizes: Sizes, system: str) -> Metrics:
    """Tasks that do nothing but wait, many more than there are slots."""
    count = sizes.waiting_tasks
    with staged(setup, system, tasks=count, slots=SLOTS) as stage:
        _, commands = enqueue(stage, count, "nap", NAP_SECONDS)
        first, last = work_off(stage, count, commands)
        return {
            **between(first, last),
            "peak_pss": stage.peak_pss,
            "at_once": stage.sheet.at_once(NAP_SECONDS),
            "repeated": stage.sheet.repeated(),
        }


def occupied(setup: Setup, sizes: Sizes, system: str) -> Metrics:
    """Short tasks at a steady rate, while others that wait take half of the slots."""
    long = int(LONG_NAP_RATE * sizes.occupied_seconds)
    short = int(sizes.rate * (sizes.occupied_seconds - LONG_NAP_SECONDS))
    plan: list[list[Any]] = [[n / LONG_NAP_RATE, "nap", [WARM_CALLS + n, LONG_NAP_SECONDS]] for n in range(long)]
    plan += [[LONG_NAP_SECONDS + n / sizes.rate, "empty", [WARM_CALLS + long + n]] for n in range(short)]
    plan.sort(key=lambda entry: float(entry[0]))
    with staged(setup, system, tasks=WARM_CALLS + len(plan), slots=SLOTS) as stage, stage.agent() as agent:
        warm_up(stage, agent, "nap")
        late = play(stage, agent, plan)
        numbers = range(WARM_CALLS + long, WARM_CALLS + len(plan))
        return {**waits(stage.sheet.waits(numbers)), "submitter_late": late}


def submit(setup: Setup, sizes: Sizes, system: str) -> Metrics:
    """Single submissions by one process, each when the one before it was taken; no worker is running."""
    count = sizes.tasks
    with staged(setup, system, tasks=WARM_CALLS + count) as stage, stage.agent() as agent:
        warm_up(stage, agent)
        stage.stop_workers()
        before = processes.cpu_seconds([stage.redis.process.pid])
        answer = agent.ask("submit_each", timeout=time_limit(count), kind="empty", first=WARM_CALLS, count=count)
        redis_cpu = processes.cpu_seconds([stage.redis.process.pid]) - before
        rates = {"submitted_per_second": count / answer["seconds"], "redis_cpu_per_1000": 1000 * redis_cpu / count}
        return {**rates, **waits(answer["taken"])}


def warm_up(stage: Stage, agent: Agent, kind: str = "spin") -> None:
    """Start the workers and let every process of theirs import, connect and run something."""
    stage.start_workers(agent.ask("describe")["workers"])
    agent.ask("enqueue", kind=kind, first=0, count=WARM_CALLS, args=[BUSY_SECONDS])
    stage.wait_for(WARM_CALLS, START_SECONDS)
    time.sleep(QUIET_SECONDS)


def play(stage: Stage, agent: Agent, plan: list[list[Any]]) -> float:
    """Submit by plan, wait for the last start; returns how late the submitter was at worst."""
    lasts = float(plan[-1][0])
    answer = agent.ask("pace", timeout=2 * lasts + START_SECONDS, plan=plan)
    stage.wait_for(WARM_CALLS + len(plan), START_SECONDS)
    return float(answer["late"])


def waits(seconds: list[float]) -> Metrics:
    ordered = sorted(seconds)
    return {"p50": percentile(ordered, 50), "p99": percentile(ordered, 99), "max": ordered[-1]}


def percentile(ordered: list[float], percent: float) -> float:
    """Nearest rank: a wait that some task really had."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def payload() -> dict[str, str]:
    """Two hundred bytes as JSON."""
    made = {"to": "someone@example.test", "subject": "hello", "text": ""}
    made["text"] = "x" * (200 - len(json.dumps(made)))
    return made


def memory(setup: Setup, sizes: Sizes, system: str) -> Metrics:
    """Bytes in Redis for a waiting task and for a completed one, with nobody connected but us.

    A first few tasks have gone all the way before, so that what a system or the server needs once is not counted.
    """
    count = sizes.memory_tasks
    with staged(setup, system, tasks=FEW_TASKS + count) as stage:
        _, commands = enqueue(stage, FEW_TASKS, "carry", payload())
        before = used_after(stage, FEW_TASKS, commands)
        enqueue(stage, count, "carry", payload(), first=FEW_TASKS)
        waiting = stage.redis.used_bytes()
        completed = used_after(stage, FEW_TASKS + count, commands)
    return {"bytes_waiting": (waiting - before) / count, "bytes_completed": (completed - before) / count}


def used_after(stage: Stage, count: int, commands: list[list[str]]) -> int:
    """Bytes in use when the first `count` tasks are done and the workers are gone."""
    work_off(stage, count, commands)
    stage.stop_workers()
    return stage.redis.used_bytes()


Workload = Callable[[Setup, Sizes, str], Metrics]

WORKLOADS: dict[str, Workload] = {
    "drain": drain_kept,
    "drain-discarded": drain_discarded,
    "idle": idle,
    "busy": busy,
    "mixed": mixed,
    "memory": memory,
    "waiting": waiting,
    "occupied": occupied,
    "submit": submit,
}
