"""Alerts are sent once and resolved once, by webhook and email, under the faults that they are for."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from firmq.shared.conditions.conditions import conditions
from firmq.shared.domain.limit import Limit
from firmq.shared.domain.schedule import Missed, Schedule
from firmq.shared.features.alerts.keys import AlertKeys
from firmq.shared.features.alerts.store import AlertStore
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.stores.failure_groups import FailureGroups
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.locks import lock_acquire
from firmq.shared.stores.presence import RELAY, Presence
from firmq.shared.stores.schedules import ScheduleStore
from firmq.shared.stores.workers import WorkerInfo
from tests.integration.housekeeping.cluster import Cluster
from tests.support.harness import ROOT, System, running_system, wait_until
from tests.support.keys import keys
from tests.support.mail_server import MailServer, mail_server
from tests.support.receiver import Receiver, receiving

HOUR_US = 3_600_000_000
KEYS = AlertKeys.beside(keys)


@dataclass
class Told:
    """What both channels were told."""

    webhook: Receiver
    mail: MailServer

    def chats(self) -> list[str]:
        return [body["text"] for body in self.webhook.bodies()]

    def fired(self, words: str) -> tuple[int, int]:
        """In how many lines of chats and of emails these words are new."""
        return self._count(words, over=False)

    def resolved(self, words: str) -> tuple[int, int]:
        """In how many lines of chats and of emails these words are over."""
        return self._count(words, over=True)

    def _count(self, words: str, over: bool) -> tuple[int, int]:
        chats = [line for text in self.chats() for line in text.splitlines()]
        mails = [line for text in self.mail.texts() for line in text.splitlines()[1:]]  # without the subject
        chat, mail = (
            sum(words in line and ("Resolved: " in line) is over for line in lines) for lines in (chats, mails)
        )
        return chat, mail


@contextmanager
def told(redis: Redis, url: str, folder: Path, **settings: str) -> Iterator[tuple[System, Told]]:
    """A system whose housekeepers send alerts to both channels soon."""
    with receiving() as webhook, mail_server() as mail:
        environment = {
            "ALERT_WEBHOOK_URL": webhook.url,
            "WEBHOOK_ALLOW": "127.0.0.0/8",
            "ALERT_EMAIL_TO": "ops@example.com, night@example.com",
            "SMTP_URL": f"smtp://127.0.0.1:{mail.port}",
            "ALERT_AFTER": "300ms",
            "ALERT_WAITING_TIME": "1s",
            "HOUSEKEEPER_ALERTS_INTERVAL": "50ms",
            "HOUSEKEEPER_METRICS_INTERVAL": "100ms",
            "DASHBOARD_URL": "https://queue.example.com/",
            **settings,
        }
        with running_system(redis, url, folder, **environment) as system:
            yield system, Told(webhook, mail)


@pytest.fixture
def site(redis_client: Redis, redis_url: str, tmp_path: Path) -> Iterator[tuple[System, Told]]:
    with told(redis_client, redis_url, tmp_path) as both:
        yield both


@dataclass
class Fault:
    """A fault: `settings` of the housekeeper, what causes it (and returns what ends it), and words of its alert."""

    words: str
    cause: Callable[[System], Callable[[], Any]]
    settings: dict[str, str] = field(default_factory=dict)


def an_hour_passes(system: System, index: str) -> None:
    """Everything in an index of moments happened an hour earlier."""
    for name, _ in system.redis.zscan_iter(index):
        system.redis.zincrby(index, -HOUR_US, name)


def dead_letters(system: System) -> Callable[[], Any]:
    system.start_worker()
    failed = system.submit("stubborn", '"key"')
    system.ended(failed)
    return lambda: system.dead_letters.purge(failed)


def bad_deploy(system: System) -> Callable[[], Any]:
    for version, data in (("1.41", '"fine"'), ("1.42", '"key"')):
        worker = system.start_worker(APP_VERSION=version)
        for each in system.submit_many([("stubborn", data)] * 20):
            system.ended(each)
        worker.terminate()
        worker.wait(30)
        time.sleep(0.01)

    def mend() -> None:
        system.start_worker(APP_VERSION="1.43")
        for each in system.submit_many([("stubborn", '"fine"')] * 20):
            system.ended(each)

    return mend


def old_task(system: System) -> Callable[[], Any]:
    system.start_worker(WORKER_EXECUTORS="1")
    busy = system.submit("slowly", '{"seconds": 300}')
    wait_until(lambda: system.redis.zcard(keys.LEASES) == 1, "it runs")
    waiting = system.submit_many([("slowly", '{"seconds": 300}')] * 3)
    return lambda: [system.queues.cancel(each, "test") for each in (*waiting, busy)]


def unknown_type(system: System) -> Callable[[], Any]:
    system.start_worker()
    waiting = system.submit("from-the-future")
    return lambda: system.queues.cancel(waiting, "test")


def throttled(system: System) -> Callable[[], Any]:
    system.start_worker(WORKER_EXECUTORS="2")
    Limits(system.scripts).put("type:slowly", Limit(concurrency=1))
    ids = system.submit_many([("slowly", '{"seconds": 300}')] * 2)
    return lambda: [system.queues.cancel(each, "test") for each in ids]


def no_worker_for_queue(system: System) -> Callable[[], Any]:
    system.start_worker(WORKER_QUEUES="normal")
    system.submit("noop", queue="low")
    return lambda: system.start_worker(WORKER_QUEUES="low")


def no_worker(system: System) -> Callable[[], Any]:
    return system.start_worker


def silent_worker(system: System) -> Callable[[], Any]:
    worker = system.start_worker(**PATIENT)
    worker.send_signal(signal.SIGSTOP)
    return lambda: worker.send_signal(signal.SIGCONT)


def lost_worker(system: System) -> Callable[[], Any]:
    system.start_worker()
    worker = system.start_worker()
    worker.kill()
    worker.wait()

    return lambda: an_hour_passes(system, keys.LOST_WORKERS)


def late_tasks(system: System) -> Callable[[], Any]:
    due = system.submit("noop", delay=timedelta(seconds=1))
    system.redis.zincrby(keys.scheduled("normal"), -60_000_000, due)
    return lambda: system.queues.run_now(due)


def missed_schedule(system: System) -> Callable[[], Any]:
    [housekeeper] = system.processes
    store = ScheduleStore(system.scripts)
    store.put(Schedule(name="tick", type="noop", queue="normal", interval=1, missed=Missed.SKIP))
    wait_until(lambda: store.get("tick").fired, "it fires")
    housekeeper.send_signal(signal.SIGSTOP)
    system.redis.hincrby(keys.schedule("tick"), "due", -60_000_000)
    due = int(system.redis.hget(keys.schedule("tick"), "due") or 0)
    system.redis.zadd(keys.SCHEDULES_DUE, {"tick": due})
    housekeeper.send_signal(signal.SIGCONT)
    return lambda: store.delete("tick")


def failing_schedule(system: System) -> Callable[[], Any]:
    system.start_worker()
    store = ScheduleStore(system.scripts)
    store.put(Schedule(name="broken", type="stubborn", data='"key"', queue="normal", interval=1, tags=("a",)))
    wait_until(lambda: store.get("broken").fired >= 2, "it runs twice")
    return lambda: store.delete("broken")


def lost_lock(system: System) -> Callable[[], Any]:
    [housekeeper] = system.processes
    wait_until(lambda: system.redis.hget(keys.lock("metrics"), "token"), "it leads")
    housekeeper.send_signal(signal.SIGSTOP)
    wait_until(lambda: not system.redis.exists(keys.lock("metrics")), "its lock ends")
    housekeeper.send_signal(signal.SIGCONT)

    return lambda: an_hour_passes(system, keys.LOST_LOCKS)


def hanging_holder(system: System) -> Callable[[], Any]:
    lock_acquire(system.scripts, "ttl", "nonce", "hk-9", timedelta(hours=1), timedelta())
    system.redis.hincrby(keys.lock("ttl"), "acquired_at", -HOUR_US)
    return lambda: system.redis.delete(keys.lock("ttl"))


def little_memory(system: System) -> Callable[[], Any]:
    system.redis.config_set("maxmemory", 1)
    return lambda: system.redis.config_set("maxmemory", 0)


def eviction(system: System) -> Callable[[], Any]:
    system.redis.config_set("maxmemory-policy", "allkeys-lru")
    return lambda: system.redis.config_set("maxmemory-policy", "noeviction")


def no_append_only_file(system: System) -> Callable[[], Any]:
    system.redis.config_set("appendonly", "no")
    return lambda: system.redis.config_set("appendonly", "yes")


def strange_key(system: System) -> Callable[[], Any]:
    system.redis.set(keys.DEADLINES, "a value of another program")
    wait_until(lambda: system.redis.zcard(keys.QUARANTINE), "it is quarantined")
    return lambda: system.redis.delete(keys.QUARANTINE)


def history_away(system: System) -> Callable[[], Any]:
    system.start_worker()
    system.ended(system.submit("noop"))
    return (system.log_dir / "missing").mkdir


def replica(system: System) -> Callable[[], Any]:
    system.redis.replicaof("127.0.0.1", 1)  # nobody listens there, now or later
    return lambda: system.redis.replicaof("NO", "ONE")


def several_leaders(system: System) -> Callable[[], Any]:
    presence = Presence(system.scripts)
    presence.report("hk-9 without locks")
    return lambda: presence.withdraw("hk-9 without locks")


def silent_relay(system: System) -> Callable[[], Any]:
    system.redis.zadd(keys.PRESENCE, {RELAY: system.scripts.now_us() - 90_000_000})
    return lambda: Presence(system.scripts).report(RELAY)


def stuck_worker(system: System) -> Callable[[], Any]:
    about = WorkerInfo(
        name="w9", host="h", pid=1, version="1", queues=("normal",), executors=1, started_at=datetime.now(UTC)
    )
    system.workers.announce(replace(about, reason="its executors end before they are ready"))
    return lambda: system.workers.announce(about)


LOCKS = {
    "HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED": "true",
    "HOUSEKEEPER_DISTRIBUTED_EXECUTION_LOCK_TTL": "2",
    "HOUSEKEEPER_LEADER_LEASE": "2",
}
PATIENT = {"LEASE_TIME": "600"}
"""A silent worker becomes a lost one after its lease: not while a test looks."""
IDLE = {"HOUSEKEEPER_UNLOCK_INTERVAL": "1h", "HOUSEKEEPER_RECOVERY_TASKS": "0"}
"""Neither moves due tasks nor notices that their index was changed."""
FAULTS = {
    "FirmqDeadLettersGrowing": Fault("1 stubborn task has failed permanently", dead_letters),
    "FirmqVersionFails": Fault("Since 1.42 stubborn fails 100 % (0 % before), one new cause", bad_deploy),
    "FirmqOldestTaskTooOld": Fault("The oldest task in normal has waited", old_task),
    "FirmqNoWorkerForType": Fault("No live worker can run from-the-future", unknown_type),
    "FirmqThrottledTooLong": Fault("throttled in normal, the oldest for", throttled),
    "FirmqNoWorkerForQueue": Fault("No worker takes from low", no_worker_for_queue),
    "FirmqPartMissing": Fault("No worker is alive", no_worker),
    "FirmqWorkerSilent": Fault("is silent", silent_worker, PATIENT),
    "FirmqWorkersLost": Fault("lost in the last 10 minutes", lost_worker),
    "FirmqDueTasksNotMoved": Fault("Due tasks are", late_tasks, IDLE),
    "FirmqScheduleMissed": Fault("Schedule tick missed", missed_schedule, {"HOUSEKEEPER_SCHEDULES_GRACE": "5s"}),
    "FirmqScheduleFailing": Fault(
        "Schedule broken: its last", failing_schedule, {"ALERT_SCHEDULE_FAILURES": "2"}
    ),
    "FirmqSeveralLeaders": Fault("housekeepers run, 1 without locks (hk-9)", several_leaders, LOCKS),
    "FirmqRelaySilent": Fault("No relay has reported for 1 min 3", silent_relay),
    "FirmqWorkerStuck": Fault("its executors end before they are ready", stuck_worker),
    "FirmqLocksLost": Fault("Lock metrics was lost", lost_lock, LOCKS),
    "FirmqHousekeepingJobLate": Fault("Lock ttl has been held by hk-9", hanging_holder),
    "FirmqRedisMemoryNearlyFull": Fault("submissions are rejected when it is full", little_memory),
    "FirmqRedisMayEvict": Fault("maxmemory-policy is allkeys-lru", eviction),
    "FirmqRedisNotDurable": Fault("there is no append-only file", no_append_only_file),
    "FirmqHistoryLate": Fault("The history is", history_away, {"HISTORY_URL": "sqlite:///{folder}/missing/h.db"}),
    "FirmqRedisReadOnly": Fault("Redis takes no writes", replica),
    "FirmqQuarantinedKeys": Fault("key in Redis held a value of the wrong type", strange_key),
}  # fmt: skip


ELSEWHERE = {
    "FirmqQueuePaused": "chosen by a person: shown, not sent",
    "FirmqRedisUnreachable": "test_an_outage_of_redis_is_told_by_the_leader_alone",
}
"""Alerts without a fault in this table, and why."""


def test_every_rule_has_its_fault() -> None:
    assert conditions().keys() == FAULTS.keys() | ELSEWHERE.keys()
    section = (ROOT / "docs/operate/alerts.md").read_text()
    assert conditions().keys() == set(re.findall(r"\[(Firmq\w+)\]", section)) | {"FirmqQueuePaused"}


@pytest.mark.parametrize("name", FAULTS)
def test_each_rule_fires_once_and_resolves_under_its_fault(name: str, site: tuple[System, Told]) -> None:
    system, said = site
    fault = FAULTS[name]
    with restoring(system.redis):
        system.start_housekeeper(**{k: v.format(folder=system.log_dir) for k, v in fault.settings.items()})
        wait_until(lambda: system.redis.hlen(KEYS.ALERTS), "the rules are evaluated")
        mend = fault.cause(system)
        wait_until(lambda: said.fired(fault.words) == (1, 1), f"both channels are told: {said.chats()}")
        time.sleep(0.5)
        assert said.fired(fault.words) == (1, 1)
        assert said.resolved(fault.words) == (0, 0)
        assert any(f"docs/operate/runbook.md#{name.lower()}" in text for text in said.chats())
        mend()
        wait_until(lambda: said.resolved(fault.words) == (1, 1), "both are told that it is over")
        time.sleep(0.5)
        assert (said.fired(fault.words), said.resolved(fault.words)) == ((1, 1), (1, 1))


def _make_primary(redis: Redis) -> None:
    if redis.info("replication")["role"] != "master":
        redis.replicaof("NO", "ONE")


@contextmanager
def restoring(redis: Redis) -> Iterator[None]:
    """Redis has its settings again afterwards, whatever a test changed."""
    names = ("maxmemory", "maxmemory-policy", "appendonly")
    before = {name: str(redis.config_get(name)[name]) for name in names}
    with ExitStack() as stack:
        stack.callback(_make_primary, redis)
        for name, value in before.items():
            stack.callback(redis.config_set, name, value)
        yield


def test_a_message_has_the_cause_the_page_and_the_runbook(site: tuple[System, Told]) -> None:
    system, said = site
    system.start_housekeeper()
    dead_letters(system)
    wait_until(lambda: said.fired("1 stubborn task has failed permanently") == (1, 1), "both channels are told")
    [chat] = [text for text in said.chats() if "stubborn" in text]
    [mail] = [each for each in said.mail.emails if "stubborn" in each.get_content()]
    [text] = [each for each in said.mail.texts() if "stubborn" in each]
    group = FailureGroups(system.scripts).page(0, 1)[0][0].key
    logged = {(each.title, each.link, each.resolved) for each in AlertStore(system.scripts).logged()}
    assert ("1 stubborn task has failed permanently in the last 10 minutes", f"/dead-letters/{group}", False) in logged
    assert "KeyError: 'no such thing'" in chat
    assert f"<https://queue.example.com/dead-letters/{group}|Dashboard>" in chat
    assert f"Dashboard: https://queue.example.com/dead-letters/{group}\n" in text
    assert "Runbook: docs/operate/runbook.md#firmqdeadlettersgrowing" in text
    assert mail["To"] == "ops@example.com, night@example.com"
    assert said.mail.recipients[-1] == ["ops@example.com", "night@example.com"]


def test_every_message_has_level_cause_page_and_runbook(redis_client: Redis, redis_url: str, tmp_path: Path) -> None:
    """Whatever the alert: a line with what is wrong, one with the cause or advice and both links."""
    with told(redis_client, redis_url, tmp_path) as (system, said), restoring(system.redis):
        system.start_housekeeper()
        wait_until(lambda: said.fired("No worker is alive") == (1, 1), "both channels are told")
        for cause in (dead_letters, eviction, strange_key):
            cause(system)
        wait_until(lambda: said.fired("maxmemory-policy") == (1, 1), "both channels are told")
        for text in said.chats():
            lines = [line for line in text.splitlines() if "Resolved: " not in line]
            assert len(lines) % 2 == 0
            for title, cause_line in zip(lines[::2], lines[1::2], strict=True):
                assert re.fullmatch(r":(red_circle|warning): \*.+\*", title), text
                page = r"<https://queue\.example\.com/[\w/-]*\|Dashboard>"
                assert re.fullmatch(rf".+ \({page}, runbook: docs/operate/runbook\.md#firmq\w+\)", cause_line), text
        for text in said.mail.texts():
            titles = re.findall(
                r"^(?:DANGER|WARNING): .+\n.+\nDashboard: https://.+\nRunbook: .+#firmq\w+$", text, re.MULTILINE
            )
            assert len(titles) == len(re.findall(r"^(?:DANGER|WARNING): ", text, re.MULTILINE))


def test_quiet_hours_put_off_warnings_and_no_danger(redis_client: Redis, redis_url: str, tmp_path: Path) -> None:
    settings = {"ALERT_QUIET_HOURS": "00:00-12:00 UTC" if datetime.now(UTC).hour < 12 else "12:00-00:00 UTC"}
    with told(redis_client, redis_url, tmp_path, **settings) as (system, said):
        system.start_housekeeper()
        wait_until(lambda: said.fired("No worker is alive") == (1, 1), "danger is told")
        dead_letters(system)
        wait_until(lambda: said.resolved("No worker is alive") == (1, 1), "its end is told")
        wait_until(lambda: "DeadLetters" in str(system.redis.hkeys(KEYS.ALERTS)), "the warning is known")
        time.sleep(1)
        assert said.fired("has failed permanently") == (0, 0)


def test_text_of_tasks_is_no_markup_and_no_header(site: tuple[System, Told]) -> None:
    system, said = site
    system.start_housekeeper()
    system.start_worker(MAX_RETRIES="0")
    system.ended(system.submit("fail", '{"message": "<!channel>\\r\\nBcc: x@example.com <http://evil|here>"}'))
    wait_until(lambda: said.fired("fail task has failed permanently") == (1, 1), "both channels are told")
    [chat] = [text for text in said.chats() if "fail task" in text]
    [mail] = [each for each in said.mail.emails if "fail task" in each.get_content()]
    assert "<!channel>" not in chat
    assert "&lt;!channel&gt; Bcc:" in chat
    assert mail["Bcc"] is None


def test_a_channel_that_is_down_gets_everything_later_in_order(site: tuple[System, Told]) -> None:
    system, said = site
    said.webhook.answers += [(500, {}, b"")]
    said.mail.refuses = True
    system.start_housekeeper()
    wait_until(lambda: "could not be sent by email" in system.logs() and len(said.webhook.got) == 1, "both refuse")
    system.start_worker()
    wait_until(lambda: system.redis.hlen(KEYS.ALERT_MESSAGES) == 4, "messages wait")
    said.mail.refuses = False
    wait_until(lambda: said.resolved("No worker is alive") == (1, 1), "both are told that it is over")
    assert said.webhook.bodies()[0] == said.webhook.bodies()[1]
    ids = [headers["webhook-id"] for headers, _ in said.webhook.got]
    assert ids[0] == ids[1] != ids[2]
    assert [each["Subject"] for each in said.mail.emails] == [
        "[firmq] No worker is alive", "[firmq] Resolved: No worker is alive"
    ]  # fmt: skip
    assert said.webhook.url.rpartition(":")[2] not in system.logs()


@pytest.mark.parametrize("point", ["alerts.noted", "alerts.sent"])
def test_a_leader_killed_while_it_tells_is_followed_by_one_that_tells_the_rest(
    point: str, redis_client: Redis, redis_url: str, tmp_path: Path
) -> None:
    # With locks: one that was killed without them counts as one beside its successor for half a minute.
    with told(redis_client, redis_url, tmp_path, ALERT_EMAIL_TO="", SMTP_URL="", **LOCKS) as (system, said):
        system.environment["FIRMQ_STOP_POINT"] = f"{point}:2:kill:{tmp_path / 'flag'}"
        first = system.start_housekeeper()
        wait_until(lambda: said.webhook.got, "the absence of workers is told")
        system.start_worker()
        first.wait(30)
        assert first.returncode == -signal.SIGKILL
        system.start_housekeeper()
        wait_until(lambda: not system.redis.hlen(KEYS.ALERT_MESSAGES), "the next one sends the rest")
        ids = [headers["webhook-id"] for headers, _ in said.webhook.got]
        assert len(ids) == (3 if point == "alerts.sent" else 2)
        assert len(set(ids)) == 2
        assert said.resolved("No worker is alive")[0] == len(ids) - 1


def test_a_change_of_leader_tells_nothing_twice(redis_client: Redis, redis_url: str, tmp_path: Path) -> None:
    with told(redis_client, redis_url, tmp_path) as (system, said):
        cluster = Cluster(system)
        cluster.start()
        try:
            first = wait_until(cluster.leader, "one leads")
            wait_until(lambda: said.fired("No worker is alive") == (1, 1), "both channels are told")
            wait_until(lambda: not system.redis.hlen(KEYS.ALERT_MESSAGES), "that is recorded: else it is told again")
            first.kill()
            first.process = None
            first.frozen = True
            wait_until(lambda: (now := cluster.leader()) and now is not first, "another leads")
            time.sleep(1)
            assert said.fired("No worker is alive") == (1, 1)
            system.start_worker()
            wait_until(lambda: said.resolved("No worker is alive") == (1, 1), "the new leader tells the end")
        finally:
            cluster.close()


def test_an_outage_of_redis_is_told_by_the_leader_alone(
    redis_client: Redis, redis_url: str, redis_server: EmbeddedRedis, tmp_path: Path
) -> None:
    with told(redis_client, redis_url, tmp_path) as (system, said):
        cluster = Cluster(system)
        for member in cluster.members:
            member.start()
        try:
            leader = wait_until(cluster.leader, "one leads")
            wait_until(lambda: said.fired("No worker is alive") == (1, 1), "alerts are sent")
            words = f"Redis does not answer housekeeper {leader.name}"
            redis_server.stop()
            wait_until(lambda: said.fired(words) == (1, 1), "the outage is told")
            time.sleep(1)
            redis_server.start()
            wait_until(lambda: said.resolved(words) == (1, 1), "its end is told")
            time.sleep(1)
            assert (said.fired("Redis does not answer"), said.resolved("Redis does not answer")) == ((1, 1), (1, 1))
            assert said.fired("No worker is alive") == (1, 1)
        finally:
            cluster.close()


def test_without_a_channel_nothing_is_evaluated(system: System) -> None:
    system.start_housekeeper(HOUSEKEEPER_METRICS_INTERVAL="0.05")
    wait_until(lambda: "unlock, timeout" in system.logs(), "it runs")
    assert "alerts" not in system.logs()
