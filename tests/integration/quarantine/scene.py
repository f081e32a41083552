"""A system that holds something of everything, and everybody who reads or writes it, in one process.

It is built once and put back key by key before each case, so that hundreds of cases take seconds. Who reads a key is
known from the commands that Redis sees, so a case asks those pages and addresses, not all of them.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from flask import Flask
from redis import Redis

from firmq.dashboard.app import create_app as create_dashboard
from firmq.dashboard.auth.users import Users
from firmq.gateway.app import create_app as create_gateway
from firmq.shared.config.settings import Settings
from firmq.shared.domain.limit import Limit
from firmq.shared.domain.schedule import Missed, Overlap, Schedule
from firmq.shared.domain.task import BatchPlace, NewTask, Parent, TaskState, Unique, Webhook, new_task_id
from firmq.shared.redis.client import connect, keys_of, text
from firmq.shared.redis.keys import Keys, KeySpace, of_features, with_prefix
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores import maintenance
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.batches import Batches, BatchTerms
from firmq.shared.stores.idempotency import Idempotency, Request
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.locks import lock_acquire
from firmq.shared.stores.queues import Queues, cancel
from firmq.shared.stores.schedules import ScheduleStore
from firmq.shared.stores.task_types import TaskType, TaskTypes
from firmq.shared.stores.tasks import Records
from firmq.shared.stores.workers import RunningTask, WorkerInfo, Workers
from firmq.worker.engine.lane_claims import LaneClaims
from firmq.worker.engine.redis_session import ClaimOrder, RedisSession, Report
from firmq.worker.executors.ipc import EndedAttempt
from firmq.worker.housekeeping.main import build
from tests.support.attempt_ends import ENDS, claiming, ended, report
from tests.support.features import rows
from tests.support.queue_names import claimed_queues

WEIGHTS = {"critical": 6, "high": 4, "normal": 3, "low": 1}
WORKER = "w1"
RESULT = b"bnVsbA=="
ERROR = json.dumps({"type": "ValueError", "message": "no", "place": "shop.pay", "pattern": "no"})
RECORD = json.dumps({"worker": WORKER, "outcome": "failed", "started_at": 1, "ended_at": 2, "error": json.loads(ERROR)})
AT_REST = ("/docs", "/openapi.json", "/problems/<slug>", "/static/<path:filename>")
"""Addresses that do not look into Redis; events are streams that do not end."""


@dataclass(frozen=True)
class Kind:
    """A kind of key in the map of the product: its name there, and the type that its docstring gives."""

    name: str
    type: str
    parameter: str | None


def spaces(keys: Keys) -> list[KeySpace]:
    """The maps of the product: that of the core, and those of the features."""
    return [keys, *of_features(keys)]


def make(keys: Keys, kind: Kind) -> Any:
    """The key of a kind; a function when there are several."""
    return next(getattr(each, kind.name) for each in spaces(keys) if hasattr(each, kind.name))


def kinds() -> list[Kind]:
    """Every key of the product; one that is added is damaged here without being named."""
    found = [kind for each in spaces(with_prefix("")) for kind in _kinds_of(type(each))]
    return [each for each in found if each.type not in ("channel", "any")]


def _kinds_of(space: type[KeySpace]) -> Iterator[Kind]:
    [named] = ast.parse(inspect.getsource(space)).body
    assert isinstance(named, ast.ClassDef)
    body = named.body
    for at, each in enumerate(body):
        if isinstance(each, ast.FunctionDef) and each.name not in vars(KeySpace):
            yield Kind(each.name, _type(ast.get_docstring(each) or ""), each.args.args[1].arg)
        elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            about = body[at + 1]
            assert isinstance(about, ast.Expr)
            assert isinstance(about.value, ast.Constant)
            yield Kind(each.targets[0].id, _type(str(about.value.value)), None)


def _type(docstring: str) -> str:
    return re.split(r"[ ,:]", docstring.strip())[0]


class Scene:
    """The parts around one Redis."""

    def __init__(self, redis: Redis, url: str) -> None:
        self.redis = redis
        self.keys = keys_of(redis)
        self.as_part = connect(url)
        self.scripts = Scripts(self.as_part)
        settings = Settings(
            housekeeper_recovery_grace=0,
            housekeeper_distributed_execution_enabled=False,  # a lock keeps to the interval of its job
            **dict(rows("SETTINGS")),
        )
        self.gateway = create_gateway(settings, connect(url))
        self.dashboard = create_dashboard(settings, connect(url), Users.load_or_exit(settings))
        self.keeper = build(settings, Scripts(connect(url))).runner
        self.slept = 0.0
        for job in (each for each in self.keeper.jobs if hasattr(each, "sleep")):
            vars(job).update(sleep=self._sleep, clock=lambda: self.slept)
        self.names: dict[str, str] = {}
        self.honest: list[str] = []
        self._furnish()
        self.saved = {key: (redis.dump(key) or b"", max(redis.pttl(key), 0)) for key in redis.scan_iter()}
        self.cases = 0
        self.apps = {"gateway": self.gateway, "dashboard": self.dashboard}
        self.all = [(name, path) for name, app in self.apps.items() for path in self.addresses(app)]
        self.words = self._words()

    def close(self) -> None:
        self.as_part.close()

    def _sleep(self, seconds: float) -> None:
        """Lets a job that paces itself go on at once."""
        self.slept += seconds

    # --- what there is ---

    def _furnish(self) -> None:
        redis, scripts = self.redis, self.scripts
        now = datetime.now(UTC)
        TaskTypes(redis).publish([TaskType(name="noop", schema={}), TaskType(name="other", schema={})])
        about = {"host": "h", "pid": 1, "version": "1", "executors": 1, "started_at": now}
        running = (RunningTask(id="t", type="noop", seconds=1),)
        Workers(redis).announce(WorkerInfo(name=WORKER, queues=tuple(WEIGHTS), running=running, **about))  # type: ignore[arg-type]
        Limits(scripts).put("key:scarce", Limit(concurrency=1, count=1000, per=1, burst=1000))
        Limits(scripts).declare({"type:other": Limit(concurrency=50)}, {})
        self._end_some()
        self._wait_some()
        self._batches()
        schedule = Schedule(name="nightly", type="noop", data="null", queue="low", cron="0 3 * * *", interval=None,
                            timezone="UTC", missed=Missed.ONCE, missed_limit=1, overlap=Overlap.ALLOW)  # fmt: skip
        ScheduleStore(scripts).put(schedule)
        Audit(redis).record("somebody", "paused", "queue low", "a reason")
        Queues(scripts, WEIGHTS).pause("low", "a reason")
        for begin in rows("SCENE"):
            self.names |= begin(scripts, Records(scripts, list(WEIGHTS)), self.names["failed"])
        self.names["key_id"] = "key-1"
        redis.hset(self.keys.api_key("key-1"), mapping={"used": 1, "tokens": 1, "at": 1})
        redis.rpush(self.keys.control(WORKER), "cancel nothing")
        lock_acquire(scripts, "recovery", "nonce", "hk-1", timedelta(seconds=30), timedelta(0))
        self.names |= {"queue": "normal", "worker": WORKER, "task_type": "noop", "tag": "a", "limit": "key:scarce"}
        self.names |= {"lines": "normal|key:scarce", "lock": "recovery", "schedule": "nightly"}

    def _new(self, kind: str = "noop", queue: str = "normal", **about: Any) -> NewTask:
        return NewTask(id=new_task_id(), type=kind, data="null", queue=queue, **about)

    def submit(self, *tasks: NewTask) -> list[str]:
        Queues(self.scripts, WEIGHTS).submit(tasks)
        return [task.id for task in tasks]

    def _claim(self, token: str, lease: int = 60_000_000) -> list[str]:
        round_robin = [part for queue in WEIGHTS for part in (queue, 100)]
        reply = self.scripts.call("claim", *claiming(WORKER, token, lease, 100, 1 << 24, *round_robin))
        return [row[0].decode() for row in reply[3]]

    def _end_some(self) -> None:
        """Something in each state in which a task has begun."""
        ends = ("completed", "failed", "retrying")
        hook = Webhook(url="http://10.0.0.1/")
        ids = self.submit(*(self._new(tags=("a",), meta={"x": "y"}, webhook=hook) for _ in ends))
        self._claim("first")
        for task_id, kind in zip(ids, ends, strict=True):
            fields = {"result": RESULT} if kind == "completed" else {"error": ERROR, "traceback": RESULT}
            end = ended(task_id, "first", kind, RECORD, **fields)
            report(self.scripts, end | {"delay_us": 3_600_000_000} if kind == "retrying" else end, worker=WORKER)
        self.names |= dict(zip(ends, ids, strict=True))
        [cancelled, self.names["expired"]] = self.submit(self._new(), self._new(expires_in=timedelta(microseconds=1)))
        cancel(self.scripts, cancelled, "unwanted")
        maintenance.expire(self.scripts, 10)
        self.names["cancelled"] = cancelled

    def _wait_some(self) -> None:
        """Honest tasks in each state in which one waits; all of them can be completed."""
        lost, claimed = self._new(limit_key="scarce"), self._new()
        self.submit(lost, claimed)
        self._claim("lost", lease=1)
        plain = self._new(tags=("a",), expires_in=timedelta(hours=1))
        unique = self._new(unique=Unique(key="u"))
        timed = self._new(unique=Unique(key="timed", until=timedelta(hours=1)))
        scarce, fair = self._new(limit_key="scarce"), self._new(fair_key="tenant")
        child, soon = self._new(parents=(Parent(task_id=plain.id),)), self._new(delay=timedelta(microseconds=300))
        later = self._new(delay=timedelta(hours=1))
        waiting = self.submit(plain, unique, timed, scarce, fair, child, soon, later)
        self.names |= {"pending": plain.id, "blocked": child.id, "scheduled": later.id, "running": lost.id}
        self.honest += [lost.id, claimed.id, *waiting[:-1]]
        once = Request.of("", "a-key", "/tasks", b"{}")
        task = self._new(queue="high")
        Idempotency(self.scripts, timedelta(hours=1)).submit(once, task)
        self.names["digest"] = once.digest
        self.honest.append(task.id)

    def _batches(self) -> None:
        batch_id = self.names["batch_id"] = new_task_id()
        batches = Batches(self.scripts)
        batches.open(batch_id, BatchTerms(name="b", max_running=2, stop_on_error=5))
        self.honest += self.submit(*(self._new(batch=BatchPlace(batch_id=batch_id, index=at)) for at in range(4)))
        batches.close(batch_id)
        batches.open(new_task_id(), BatchTerms(name="still open"))

    def keys_of(self, kind: Kind) -> list[str]:
        """Where keys of a kind are: those that there are, or one that there might be."""
        if kind.parameter is None:
            return [make(self.keys, kind)]
        made = make(self.keys, kind)
        if kind.parameter == "state":
            return [made(state) for state in TaskState if state.ended]
        start = made(0).removesuffix("0") if kind.parameter == "minute" else made("")
        there = [key.decode() for key in self.saved if key.startswith(start.encode())]
        named = self.names.get(kind.parameter) or self.names.get(kind.name)
        if kind.parameter == "task_id":
            return [made(self.names[state]) for state in ("pending", "completed", "failed")]
        alone = {make(self.keys, each) for each in kinds() if each.parameter is None}
        return [made(named)] if named else [key for key in there if key not in alone] or [made("1")]

    # --- what happens ---

    def put_back(self) -> None:
        self.redis.flushall()
        with self.redis.pipeline(transaction=False) as pipeline:
            for key, (value, ttl) in self.saved.items():
                pipeline.restore(key, ttl, value)
            pipeline.execute()
        self.forget()

    def forget(self) -> None:
        """Lets the dashboard read everything anew."""
        self.dashboard.extensions["page_context"].queries.cache.clear()

    def work(self) -> None:
        """A worker takes what it can get and completes all of it."""
        session, claims = RedisSession(self.scripts, WORKER, 30.0), LaneClaims(WORKER, claimed_queues(WEIGHTS))
        for _ in range(20):
            result = session.sync([ClaimOrder(claims, 100)], [])
            for claimed in result.claimed:
                end = EndedAttempt(*ENDS["completed"], b'{"outcome":"completed"}', run_us=100_000, result=RESULT)
                session.report(Report(claimed, end))
            if result.claimed:
                session.sync([], [])
            elif claims.parked:
                return

    def keep(self) -> None:
        """A round of each housekeeping job, after the leases of whatever nobody knows about any more are over."""
        if self.redis.type(self.keys.LEASES) == b"zset" and (running := self.redis.zrange(self.keys.LEASES, 0, -1)):
            self.redis.zadd(self.keys.LEASES, dict.fromkeys(map(text, running), 1))
        for job in self.keeper.jobs:
            self.keeper.run_once(job)

    def refusals(
        self, damaged: Sequence[str] = (), asked: Sequence[tuple[str, str]] | None = None
    ) -> Iterator[tuple[str, int, str]]:
        """Whoever reads what there is: addresses that answered with a 5xx, and what they said. All are asked, if not
        said otherwise.
        """
        tasks = [(name, f"/tasks/{each}") for name in self.apps for each in damaged]
        for name, path in (*(self.all if asked is None else asked), *tasks):
            answer = self.apps[name].test_client().get(path)
            if answer.status_code >= 500:
                yield path, answer.status_code, answer.text

    def readers(self, *keys: str) -> list[tuple[str, str]]:
        """The addresses that name one of these keys to Redis."""
        return [each for each in self.all if not self.words[each].isdisjoint(keys)]

    def readers_and_some(self, *keys: str) -> list[tuple[str, str]]:
        """The same, and a quarter of the others, another one in each case: what was damaged may have spread."""
        self.cases += 1
        readers = self.readers(*keys)
        return readers + [each for each in self.all[self.cases % 4 :: 4] if each not in readers]

    def _words(self) -> dict[tuple[str, str], set[str]]:
        """What each address says to Redis, also in scripts: before anything has happened, and after that."""
        words: dict[tuple[str, str], set[str]] = {each: set() for each in self.all}
        with self.redis.monitor() as monitor:
            for kept in (False, True):
                if kept:
                    self.keep()
                for number, (name, path) in enumerate(self.all):
                    self.redis.echo(f"begins {number}")
                    self.forget()
                    self.apps[name].test_client().get(path)
                    self.redis.echo("ends")
            self.redis.echo("over")
            asked = None
            while (said := monitor.next_command()["command"].split(" "))[1:] != ["over"]:
                if said[0] == "ECHO":
                    asked = self.all[int(said[2])] if said[1] == "begins" else None
                elif asked:
                    words[asked].update(said)
        return words

    def addresses(self, app: Flask) -> Iterator[str]:
        for rule in app.url_map.iter_rules():
            if "GET" not in (rule.methods or ()) or rule.rule in AT_REST or rule.rule.endswith("/events"):
                continue
            if "task_id" in rule.arguments:
                for state in ("pending", "completed", "failed"):
                    yield self._address(rule.rule, {"task_id": self.names[state]})
            else:
                yield self._address(rule.rule, {})

    def _address(self, rule: str, about: Mapping[str, str]) -> str:
        def value(match: re.Match[str]) -> str:
            name = match[2]
            if name in about:
                return about[name]
            if name in ("what", "kind"):
                return {"what": "data", "kind": "csv"}[name]
            if name == "key":
                return "0" * 16
            if name == "name":
                by_path = {
                    "/schedules": "nightly",
                    "/admin": "recovery",
                    "/limits/types": "other",
                    "/limits/keys": "scarce",
                }
                return next((here for start, here in by_path.items() if rule.startswith(start)), "noop")
            return self.names[name]

        return re.sub(r"<(\w+(?:\([^)]*\))?:)?(\w+)>", value, rule)

    def unfinished(self) -> dict[str, str]:
        """Honest tasks that have not been completed, and where they are."""
        with self.redis.pipeline(transaction=False) as pipeline:
            for each in self.honest:
                pipeline.hget(self.keys.rq_job(each), "state")
            states = pipeline.execute(raise_on_error=False)
        return {task: str(state) for task, state in zip(self.honest, states, strict=True) if state != b"completed"}
