"""What can go wrong, each as a function that begins it and gives back how it ends.

A fault takes something to itself: a part, Redis, or the stored data. Faults that take different things go on together.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import psutil
from redis import Redis
from redis.exceptions import RedisError
from rq import Queue

from firmq.shared.redis.client import text
from firmq.shared.redis.linker import source
from firmq.worker.executors.ipc import CONCURRENT
from tests.labs.faults import kinds
from tests.labs.faults.addresses import HOST, new_port
from tests.labs.faults.clients import call
from tests.labs.faults.ledger import Ledger
from tests.labs.faults.site import LEASE, MOST_WAITING, Part, Site, fill_disk, freeze, make_room, thaw
from tests.labs.faults.slow_disk import HeldFsync
from tests.support.attempt_ends import claiming
from tests.support.keys import keys

Undo = Callable[[], object]
CLOCK_MOVED = 600.0
"""Seconds."""
RUN_LONG = """
local function now() local t = redis.call('TIME'); return t[1] * 1000000 + t[2] end
local until_ = now() + ARGV[1]
while now() < until_ do end
"""
"""A script that does nothing for so many microseconds."""
_EXECUTOR = f"firmq.worker.executors.child {CONCURRENT} "
TOGETHER = 1000
"""Leases that end in the same moment."""
MANY = 1_000_000


@dataclass
class Happened:
    """One fault: what, whose, when it began and ended, and which processes it was about."""

    name: str
    victim: str
    begin_ns: int
    end_ns: int = 0
    pids: list[int] = field(default_factory=list)
    frozen: bool = False
    tasks: list[str] = field(default_factory=list)
    """The tasks that it was about, when it was about tasks."""
    tickets: int = 0
    """Tickets that it took away."""
    holds_up: bool = False
    """Whether nobody can be expected to go on before it is over, whatever else has ended."""
    rolls_back: bool = False
    """Whether Redis may have answered steps that it then took back."""


@dataclass
class Scene:
    """What a fault has to do with: the part that it takes, and how long it is to last."""

    site: Site
    ledger: Ledger
    dice: Random
    seconds: float
    happened: Happened
    victim: Part | None = None

    @property
    def part(self) -> Part:
        assert self.victim is not None
        return self.victim


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault: what it takes to itself (a module of parts, any `part`, `redis`, `data`), how long it lasts."""

    name: str
    takes: str
    shortest: float
    longest: float
    begin: Callable[[Scene], Undo]


# --- Processes -----------------------------------------------------------------------------------------------------


def kill(scene: Scene) -> Undo:
    scene.part.kill()
    return scene.part.start


def kill_all(scene: Scene) -> Undo:
    scene.part.kill_all()
    return scene.part.start


def kill_child(scene: Scene) -> Undo:
    """Another process takes its place without our help."""
    scene.happened.pids = scene.happened.pids[1:] and [scene.dice.choice(scene.happened.pids[1:])]
    _signal_all(scene.happened.pids, signal.SIGKILL)
    return _nothing


def kill_concurrent(scene: Scene) -> Undo:
    """The process in which many tasks run at a time; all of them begin again."""
    scene.happened.pids = concurrent_of(scene.happened.pids)
    _signal_all(scene.happened.pids, signal.SIGKILL)
    return _nothing


def freeze_concurrent(scene: Scene) -> Undo:
    scene.happened.pids = concurrent_of(scene.happened.pids)
    return _freeze(scene)


def concurrent_of(pids: Iterable[int]) -> list[int]:
    """Those of these processes that are concurrent executors."""
    return [pid for pid in pids if _EXECUTOR in " ".join(command_of(pid))]


def command_of(pid: int) -> Sequence[str]:
    """The arguments of a process; none if it has ended."""
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return ()


def freeze_part(scene: Scene) -> Undo:
    """The process that was started; what it started goes on."""
    scene.happened.pids = scene.happened.pids[:1]
    return _freeze(scene)


def freeze_all(scene: Scene) -> Undo:
    return _freeze(scene)


def freeze_child(scene: Scene) -> Undo:
    scene.happened.pids = scene.happened.pids[1:] and [scene.dice.choice(scene.happened.pids[1:])]
    return _freeze(scene)


def move_clock(scene: Scene) -> Undo:
    """Its wall clock is ten minutes fast or slow, from its start or all of a sudden; and then right again."""
    part = scene.part
    from_its_start = scene.dice.random() < 0.5
    if from_its_start:
        part.kill_all()
    part.set_clock(scene.dice.choice([-CLOCK_MOVED, CLOCK_MOVED]))
    if from_its_start:
        part.start()
    return lambda: part.set_clock(0)


def update(scene: Scene) -> Undo:
    """A worker makes place for one with the other version of the application, and that one for the first again."""
    part = scene.part
    before = part.version
    part.update(1 - before)
    return lambda: part.update(before)


def _freeze(scene: Scene) -> Undo:
    pids = list(scene.happened.pids)
    scene.happened.frozen = True
    freeze(pids)
    return lambda: thaw(pids)


def _signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _nothing() -> None:
    pass


# --- The way to Redis ----------------------------------------------------------------------------------------------


def cut(scene: Scene) -> Undo:
    scene.part.relay.cut = True
    return scene.part.relay.heal


def refuse(scene: Scene) -> Undo:
    scene.part.relay.refusing = True
    return scene.part.relay.heal


def swallow(scene: Scene) -> Undo:
    """Answers are lost on the way back, one after the other: what was asked for is done."""
    scene.part.relay.swallow = scene.dice.randint(1, 8)
    return scene.part.relay.heal


def swallow_everywhere(scene: Scene) -> Undo:
    return _on_all_relays(scene, lambda part: setattr(part.relay, "swallow", scene.dice.randint(1, 4)))


def refuse_everywhere(scene: Scene) -> Undo:
    return _on_all_relays(scene, lambda part: setattr(part.relay, "refusing", True))


def slow_everywhere(scene: Scene) -> Undo:
    return _on_all_relays(scene, lambda part: setattr(part.relay, "delay", scene.dice.uniform(0.002, 0.02)))


def _on_all_relays(scene: Scene, act: Callable[[Part], None]) -> Undo:
    parts = list(scene.site.parts.values())
    for part in parts:
        act(part)

    def heal() -> None:
        for part in parts:
            part.relay.heal()

    return heal


# --- Redis ---------------------------------------------------------------------------------------------------------


def kill_redis(scene: Scene) -> Undo:
    scene.site.redis.kill()
    return scene.site.redis.start


def slow_fsync(scene: Scene) -> Undo:
    """The disk takes its time: what Redis answers meanwhile is not in its file yet."""
    return HeldFsync(scene.site.redis.pid or 0).let_go


def kill_redis_in_slow_fsync(scene: Scene) -> Undo:
    """kill -9 of the server alone: the machine goes on, and so does everything that is in the file."""
    scene.happened.rolls_back = True
    held = HeldFsync(scene.site.redis.pid or 0)

    def kill_and_start() -> None:
        held.kill_server()
        scene.site.redis.kill()
        scene.site.redis.start()

    return kill_and_start


def freeze_redis(scene: Scene) -> Undo:
    pids = [scene.site.redis.pid] if scene.site.redis.pid else []
    freeze(pids)
    return lambda: thaw(pids)


def pause_redis(scene: Scene) -> Undo:
    """CLIENT PAUSE ends by itself."""
    scene.site.tell(lambda redis: redis.client_pause(int(scene.seconds * 1000), all=scene.dice.random() < 0.5))
    return _nothing


def fill_redis(scene: Scene) -> Undo:
    """maxmemory with noeviction: new data is refused."""
    return _configure(scene, "maxmemory", "1mb", "0")


def fill_disk_for_good(scene: Scene) -> Undo:
    """Whose Redis is to answer only what is on the disk (`always`) sees it end; it is started when there is room."""
    redis = scene.site.redis
    scene.site.tell(lambda admin: admin.config_set("appendfsync", "always"))
    fill_disk(redis, scene.dice.randrange(5000))

    def start() -> None:
        redis.kill()
        redis.start()

    return start


def fill_disk_for_a_while(scene: Scene) -> Undo:
    """With `everysec` Redis keeps in memory what it could not write, and refuses more until there is room."""
    redis = scene.site.redis
    fill_disk(redis, scene.dice.randrange(5000))
    return lambda: make_room(redis)


def too_few_replicas(scene: Scene) -> Undo:
    """Redis refuses every write (NOREPLICAS)."""
    return _configure(scene, "min-replicas-to-write", "1", "0")


def _configure(scene: Scene, name: str, value: str, afterwards: str) -> Undo:
    scene.site.tell(lambda redis: redis.config_set(name, value))
    return lambda: scene.site.tell(lambda redis: redis.config_set(name, afterwards))


def demote_redis(scene: Scene) -> Undo:
    """Redis is a replica of nobody who is there: it answers READONLY."""
    scene.site.tell(lambda redis: redis.replicaof(HOST, str(new_port())))
    return lambda: scene.site.tell(lambda redis: redis.replicaof("NO", "ONE"))


def keep_redis_busy(scene: Scene) -> Undo:
    """A script of somebody's keeps Redis to itself, which answers BUSY to all others; it ends by itself."""
    scene.site.tell(lambda redis: redis.config_set("lua-time-limit", "100"))
    script = threading.Thread(target=_run_long, args=(scene.site.redis.url, scene.seconds), daemon=True)
    script.start()

    def afterwards() -> None:
        script.join()
        scene.site.tell(lambda redis: redis.config_set("lua-time-limit", "5000"))

    return afterwards


def _run_long(url: str, seconds: float) -> None:
    with suppress(RedisError), Redis.from_url(url, socket_timeout=seconds + 10) as redis:
        redis.eval(RUN_LONG, 0, int(seconds * 1e6))


def flush_scripts(scene: Scene) -> Undo:
    scene.site.tell(lambda redis: redis.script_flush())
    return _nothing


# --- Data ----------------------------------------------------------------------------------------------------------


def lose_tickets(scene: Scene) -> Undo:
    """Somebody deletes RQ's lists by hand; how many tickets were in them is noted before."""
    scene.site.tell(lambda redis: _delete_lists(scene))
    return _nothing


def _delete_lists(scene: Scene) -> None:
    lists = list(map(keys.rq_queue, kinds.LANES))
    with scene.site.admin.pipeline(transaction=True) as pipeline:
        for each in lists:
            pipeline.lrange(each, 0, -1)
        pipeline.delete(*lists)
        try:
            *entries, _ = pipeline.execute()
        except (RedisError, OSError):
            scene.happened.tickets += MANY  # it may have been done, and nobody knows to how many
            scene.ledger.foreign.clear()
            raise
    scene.happened.tickets += sum(map(len, entries))
    for job_id in map(text, itertools.chain(*entries)):
        scene.ledger.foreign.pop(job_id, None)


def foreign_jobs(scene: Scene) -> Undo:
    """Programs that use RQ put jobs of their own into queues named like ours."""
    for _ in range(scene.dice.randint(1, 5)):
        scene.site.tell(lambda redis: _enqueue_with_rq(scene, redis))
    return _nothing


def _enqueue_with_rq(scene: Scene, redis: Redis) -> None:
    queue = scene.dice.choice(kinds.QUEUES)
    job_id = f"{kinds.FOREIGN}{uuid.uuid4().hex}"
    Queue(queue, connection=redis).enqueue("os.getpid", job_id=job_id)
    scene.ledger.foreign[job_id] = queue


def flood(scene: Scene) -> Undo:
    """Far more tasks than a queue takes, from one who does not wait."""
    for _ in range(6):
        _submit(scene, 500, "low")
        with suppress(RedisError):
            waiting = int(scene.site.admin.zcard(keys.pending("low")))
            # What was claimed, retried or given back may come on top, never more than that.
            if waiting > MOST_WAITING + 500:
                scene.ledger.strange(f"{waiting} tasks wait in a queue that takes {MOST_WAITING}")
    return _nothing


def many_leases(scene: Scene) -> Undo:
    """A worker of our own claims a thousand tasks and is never heard of again."""
    gateway = next(iter(scene.site.gateways.values()))
    call(gateway, "POST", "/queues/low/pause", {"reason": "the laboratory collects tasks"})
    for _ in range(3):
        _submit(scene, 400, "low")
    scene.site.tell(lambda redis: _claim_all(scene))
    return lambda: scene.site.tell(lambda redis: redis.hdel(keys.PAUSED, "low"))


def _claim_all(scene: Scene) -> None:
    """Ends the pause and claims in one step, or the workers would be quicker."""
    with scene.site.admin.pipeline(transaction=True) as pipeline:
        pipeline.hdel(keys.PAUSED, "low")
        for _ in range(2):
            names, half = (f"nobody-{uuid.uuid4().hex}", uuid.uuid4().hex), TOGETHER // 2
            arguments = claiming(*names, int(scene.seconds * 1e6), half, 4 << 20, "low", half)
            pipeline.eval(source("claim", keys), 1, keys.NOTHING, "", *arguments)
        _, *claims = pipeline.execute()
    scene.happened.tasks = [task[0].decode() for claim in claims for task in claim[3]]


def _submit(scene: Scene, number: int, queue: str) -> None:
    asked = [
        scene.ledger.ask("quick", {"type": "lab", "data": {"kind": "quick"}, "queue": queue}, keyed=False)
        for _ in range(number)
    ]
    for each in asked:
        each.about["data"]["n"] = each.n
    name, address = scene.dice.choice(list(scene.site.gateways.items()))
    answer = call(address, "POST", "/tasks/batch", {"tasks": [each.about for each in asked]})
    for each, item in zip(asked, answer.body.get("items", []), strict=False):
        refused = item.get("problem", {}).get("status") == 429
        said = "accepted" if "problem" not in item else "refused" if refused else ""
        scene.ledger.told(each, said, item.get("task_id", "") if said == "accepted" else "", name)


# --- All of them ---------------------------------------------------------------------------------------------------

_LONG = (LEASE + 0.5, LEASE + 2.5)
"""Longer than a lease, and than every housekeeping lock."""

FAULTS = [
    Fault("executor killed", "worker", 0, 0.2, kill_child),
    Fault("executor frozen", "worker", *_LONG, freeze_child),
    Fault("concurrent executor killed", "worker", 0, 0.2, kill_concurrent),
    Fault("concurrent executor frozen", "worker", *_LONG, freeze_concurrent),
    Fault("worker killed", "worker", 0, 2, kill),
    Fault("worker frozen", "worker", *_LONG, freeze_part),
    Fault("worker and executors frozen", "worker", *_LONG, freeze_all),
    Fault("worker cut off", "worker", *_LONG, cut),
    Fault("worker refused", "worker", 0.5, 4, refuse),
    Fault("answers to worker lost", "worker", 1, 2, swallow),
    Fault("application updated", "worker", 0.5, 4, update),
    Fault("housekeeper killed", "housekeeper", 0, 3, kill),
    Fault("housekeeper frozen", "housekeeper", *_LONG, freeze_all),
    Fault("housekeeper cut off", "housekeeper", *_LONG, cut),
    Fault("answers to housekeeper lost", "housekeeper", 1, 2, swallow),
    Fault("gateway killed", "gateway", 0, 2, kill_all),
    Fault("gateway process killed", "gateway", 0, 0.2, kill_child),
    Fault("gateway frozen", "gateway", *_LONG, freeze_all),
    Fault("answers to gateway lost", "gateway", 1, 2, swallow),
    Fault("dashboard killed", "dashboard", 0, 2, kill_all),
    Fault("dashboard frozen", "dashboard", *_LONG, freeze_all),
    Fault("clock moved", "part", *_LONG, move_clock),
    Fault("redis killed", "redis", 0.1, 2.5, kill_redis),
    Fault("redis with a slow fsync", "redis", 0.5, 3, slow_fsync),
    Fault("redis killed in a slow fsync", "redis", 0.5, 2, kill_redis_in_slow_fsync),
    Fault("redis frozen", "redis", 1, LEASE + 2.5, freeze_redis),
    Fault("redis paused", "redis", 0.5, 4, pause_redis),
    Fault("redis full", "redis", 0.5, 4, fill_redis),
    Fault("disk full, redis ends", "redis", 0.5, 4, fill_disk_for_good),
    Fault("disk full, redis waits", "redis", 0.5, 4, fill_disk_for_a_while),
    Fault("redis without replicas", "redis", 0.5, 4, too_few_replicas),
    Fault("redis read-only", "redis", 0.5, 4, demote_redis),
    Fault("redis refusing connections", "redis", 0.5, 3, refuse_everywhere),
    Fault("redis busy", "redis", 0.5, 4, keep_redis_busy),
    Fault("redis slow", "redis", 1, 3, slow_everywhere),
    Fault("answers of redis lost", "redis", 1, 2, swallow_everywhere),
    Fault("scripts flushed", "redis", 0, 0.1, flush_scripts),
    Fault("tickets lost", "data", 0, 0.1, lose_tickets),
    Fault("jobs of RQ programs", "data", 0, 0.1, foreign_jobs),
    Fault("flood of submissions", "data", 0, 0.1, flood),
    Fault("1,000 leases end together", "data", LEASE, LEASE, many_leases),
]
BY_NAME = {fault.name: fault for fault in FAULTS}


def draw_seconds(fault: Fault, dice: Random) -> float:
    return dice.uniform(fault.shortest, fault.longest)


def now_ns() -> int:
    return time.monotonic_ns()
