"""A real Prometheus over two gateways, two workers and three housekeepers under load, while they die and come back.

With TEST_LONG=1 it lasts two minutes instead of half a minute.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from firmq.shared.domain.task import TaskState
from tests.integration.housekeeping.cluster import Cluster, Member
from tests.monitoring.prometheus import Prometheus, running_prometheus
from tests.monitoring.test_names import panels
from tests.support.harness import System, free_port, wait_until

pytestmark = [pytest.mark.alone, pytest.mark.timeout(400)]

SECONDS = 120 if os.environ.get("TEST_LONG") == "1" else 18
BATCH = [
    *[{"type": "noop", "data": None}] * 36,
    *[{"type": "fail", "data": {"message": "on purpose"}, "max_retries": 0}] * 2,
    *[{"type": "fail", "data": {"message": "twice"}, "max_retries": 1}] * 2,
]
PAUSE = 0.1
"""Between batches."""


@dataclass
class Load:
    """Submits through all gateways in turn."""

    ports: list[int]
    accepted: int = 0
    spans: list[tuple[float, float]] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        began = time.time()
        clients = [httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) for port in self.ports]
        turn = 0
        while not self._stop.wait(PAUSE):
            answer = clients[turn % len(clients)].post("/tasks/batch", json={"tasks": BATCH})
            assert answer.status_code == 202, answer.text
            self.accepted += len(BATCH)
            turn += 1
        for client in clients:
            client.close()
        self.spans.append((began, time.time()))


@dataclass
class Site:
    """Everything that runs."""

    system: System
    cluster: Cluster
    prometheus: Prometheus
    load: Load
    gateways: list[subprocess.Popen[bytes]]
    gateway_ports: list[int]
    workers: list[subprocess.Popen[bytes]]
    worker_ports: list[int]
    kills: list[tuple[float, float]] = field(default_factory=list)
    """When a leader was killed, and when the next one led."""

    def calm(self) -> None:
        """Nothing runs any more, and Prometheus knows all that happened."""
        self.load.stop()
        self.system.all_ended()
        self.prometheus.wait_for_scrapes()

    def kill_leader(self) -> Member:
        leader: Member = wait_until(self.cluster.leader, "somebody leads")
        at = time.time()
        leader.kill()
        wait_until(lambda: (now := self.cluster.leader()) and now is not leader, "another leads", 15)
        self.kills.append((at, time.time()))
        return leader

    def restart_worker(self, number: int) -> None:
        self.workers[number].send_signal(signal.SIGTERM)
        self.workers[number].wait(20)
        self.workers[number] = start_worker(self.system, self.worker_ports[number])
        wait_until(lambda: self.prometheus.value("count(up == 1)") == 8, "it is scraped again", 60)

    def kill_a_process_of_a_gateway(self) -> None:
        gateway = self.gateways[0].pid
        child = int(Path(f"/proc/{gateway}/task/{gateway}/children").read_text().split()[0])
        os.kill(child, signal.SIGKILL)


@pytest.fixture(scope="module")
def site(module_system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """All parts, scraped, with what the tests look at behind them: load, two killed leaders, restarts."""
    system = module_system
    gateway_ports, worker_ports, dashboard_port = [free_port(), free_port()], [free_port(), free_port()], free_port()
    cluster = Cluster(system)
    jobs = {
        "gateway": gateway_ports,
        "worker": worker_ports,
        "housekeeper": [member.port for member in cluster.members],
        "dashboard": [dashboard_port],
    }
    with running_prometheus(tmp_path_factory.mktemp("prometheus"), jobs) as prometheus:
        cluster.start()
        workers = [start_worker(system, port) for port in worker_ports]
        others = ",".join(f"127.0.0.1:{port}" for name, ports in jobs.items() if name != "gateway" for port in ports)
        gateways = [
            system.start("gateway", GATEWAY_PORT=str(port), GATEWAY_PROCESSES="2", METRICS_SOURCES=others)
            for port in gateway_ports
        ]
        system.start("dashboard", DASHBOARD_PORT=str(dashboard_port))
        wait_until(lambda: prometheus.value("count(up == 1)") == 8, "all are scraped", 90)
        wait_until(lambda: prometheus.value("max(firmq_active_workers)") == 2, "both workers are known", 60)
        httpx.get(f"http://127.0.0.1:{dashboard_port}/").raise_for_status()
        load = Load(gateway_ports)
        running = Site(system, cluster, prometheus, load, gateways, gateway_ports, workers, worker_ports)
        try:
            live(running)
            yield running
        finally:
            load.stop()
            cluster.close()


def start_worker(system: System, port: int) -> subprocess.Popen[bytes]:
    return system.start("worker", WORKER_METRICS_PORT=str(port), WORKER_EXECUTORS="1")


def live(site: Site) -> None:
    """The life of the site: load in three parts, a leader killed in the first and the third, restarts between."""
    part = SECONDS / 3
    site.load.start()
    time.sleep(part / 2)
    dead = site.kill_leader()
    time.sleep(part / 2)
    dead.start()
    site.calm()
    # A process takes along what it counted after its last scrape; here there is nothing like that.
    site.restart_worker(1)
    site.kill_a_process_of_a_gateway()
    site.load.start()
    time.sleep(part)
    dead = site.kill_leader()
    time.sleep(part)
    dead.start()
    site.calm()


# --- counters ---


def test_the_sum_over_all_processes_is_the_number_of_tasks(site: Site) -> None:
    counts = site.system.records.counts()
    counted = site.prometheus.counted
    print(f"{site.load.accepted} tasks, {counts[TaskState.COMPLETED]} completed, {counts[TaskState.FAILED]} failed")
    assert sum(counts.values()) == site.load.accepted
    assert counted("task_submissions_total") == site.load.accepted
    assert counted('task_completions_total{status="completed"}') == counts[TaskState.COMPLETED]
    assert counted('task_completions_total{status="failed"}') == counts[TaskState.FAILED]
    assert counted("task_duration_seconds_count") == site.load.accepted + counted("task_retries_total")
    assert counted("task_failures_total") == counts[TaskState.FAILED] + counted("task_retries_total")


GUIDE = (
    "task_submissions_total", "task_completions_total", "task_duration_seconds", "task_retries_total",
    "tasks_in_dlq_total", "active_workers_total", "pending_tasks_total", "retry_tasks_total", "task_failures_total",
    "worker_errors_total",
)  # fmt: skip


def test_the_page_of_a_gateway_shows_the_metrics_of_all_parts(site: Site) -> None:
    for port in site.gateway_ports:
        page = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        assert [name for name in GUIDE if f"# TYPE {name} " not in page and f"# TYPE {name}_total " not in page] == []


def test_restarts_leave_rates_right(site: Site) -> None:
    first = site.load.spans[0][0] - 2
    window = f"{int(time.time() - first)}s"
    increase = site.prometheus.value(f'sum(increase(task_completions_total{{status="completed"}}[{window}]))')
    completed = site.system.records.counts()[TaskState.COMPLETED]
    fastest = site.prometheus.value(f"max_over_time(sum(rate(task_completions_total[5s]))[{window}:1s])")
    sent = len(BATCH) / PAUSE
    print(f"increase {increase} for {completed}; at most {fastest}/s of {sent}/s sent")
    assert increase == pytest.approx(completed, rel=0.1)
    assert fastest is not None
    assert fastest < 3 * sent
    assert site.prometheus.value(f"sum(resets(task_submissions_total[{window}]))") == 0


def test_series_of_a_worker_that_was_restarted_are_gone(site: Site) -> None:
    assert len(site.prometheus.series("count by (worker) (worker_errors_total)")) == 2
    assert site.prometheus.value('sum(firmq_slots{kind="serial"})') == 2


# --- gauges of the whole system ---

SYSTEM = (
    '{__name__=~"firmq_(tasks|pending_tasks|retry_tasks|dead_letters|active_workers|queue_workers|queue_paused|'
    "redis_.*|schedules|oldest_.*|.*_overdue_seconds)|pending_tasks_total|retry_tasks_total|tasks_in_dlq_total|"
    'active_workers_total"}'
)


def test_no_gauge_is_doubled(site: Site) -> None:
    since = site.load.spans[0][0]
    sources = site.prometheus.over_time(f"count by (__name__, priority, status, policy) ({SYSTEM})", since)
    assert len(sources) > 30
    assert {value for samples in sources.values() for _, value in samples} == {1.0}
    [leaders] = site.prometheus.over_time("sum(firmq_housekeeper_leader)", since).values()
    assert {value for _, value in leaders} == {0.0, 1.0}


def test_gauges_of_a_dead_leader_disappear_and_those_of_the_next_come(site: Site) -> None:
    for killed, followed in site.kills:
        seen = [site.prometheus.value("count(firmq_tasks)", killed + step / 4) for step in range(60)]
        first = seen.index(None)  # later ones are the next kill's, or after the end of it all
        gap = [step / 4 for step in range(first, len(seen)) if not any(seen[first : step + 1])]
        print(f"killed; no gauges from {min(gap)} s to {max(gap)} s; another led after {followed - killed:.1f} s")
        assert min(gap) <= 2
        assert max(gap) < followed - killed + 3


def test_no_gauge_is_frozen(site: Site) -> None:
    def up_to_date() -> bool:
        shown = site.prometheus.series("firmq:tasks").items()
        now = {dict(labels)["status"]: samples[0][1] for labels, samples in shown}
        return now == {state.value: count for state, count in site.system.records.counts().items()}

    wait_until(up_to_date, "the gauges show what is there")
    longest, looks = 0.0, 0
    for samples in site.prometheus.series('firmq_tasks{status="completed"}[1h]').values():
        for began, ended in site.load.spans:
            shown = [(at, value) for at, value in samples if began + 2 < at < ended]
            since = shown[0] if shown else (0.0, -1.0)
            for at, value in shown:
                since = (at, value) if value != since[1] else since
                longest = max(longest, at - since[0])
            looks += len(shown)
    print(f"unchanged under load for {longest:.1f} s at most in {looks} samples")
    assert looks > SECONDS / 2
    assert longest < 3


# --- what people look at ---


def test_every_rule_can_be_evaluated(site: Site) -> None:
    for group in site.prometheus.ask("rules")["groups"]:
        for rule in group["rules"]:
            assert rule["health"] == "ok", rule


EMPTY = {"firmq:queue_paused == 1", "max(firmq_redis_max_memory_bytes) > 0"}
"""Nothing is paused here, and Redis has no limit."""


def test_every_panel_shows_something(site: Site) -> None:
    while_it_worked = site.load.spans[-1][1] - 1
    empty = [
        (panel["title"], target["expr"])
        for panel in panels()
        for target in panel["targets"]
        if not site.prometheus.series(target["expr"].replace("$__rate_interval", "10s"), while_it_worked)
        and target["expr"] not in EMPTY
    ]
    assert empty == []
