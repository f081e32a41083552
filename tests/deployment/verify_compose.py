"""`make verify-compose`: the compose file on a real engine, from the build to the last volume removed.

Beside it run the example that sends logs to Loki, an identity provider with which people sign in, and a chat and a mail
server that take alerts.

It works with a project and volumes of its own, and takes the ports that the compose file publishes. Where
the engine is not this machine's, `--beside` gives the words to put before each command; where an image is not to be
had, `--file tests/deployment/stand_ins.yml` puts something in its place.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shlex
import sys
import tempfile
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.deployment.claims import claim
from tests.deployment.engine import Engine
from tests.support import oidc_provider
from tests.support.harness import wait_until

ADDED_MEGABYTES = 170
"""What our part of the image may weigh, on top of the Python image; 150 when this was written.

Half of it is for databases, buckets and sign-in.
"""
EXPECTED = Counter(
    credentials=1,
    redis=1,
    gateway=1,
    worker=1,
    housekeeper=2,
    dashboard=1,
    prometheus=1,
    jaeger=1,
    loki=1,
    identity=1,
    inbox=1,
)
LONGEST_STOP = 45
"""Seconds: a worker's stop_grace_period, and what the commands take."""


class Verification:
    """The claims, in the order in which they are shown."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.kept: list[str] = []

    def run(self) -> None:
        self.build()
        self.start()
        self.confined()
        self.work()
        self.logs()
        self.sign_in()
        self.alerts()
        self.scale()
        self.kill_a_worker()
        self.kill_redis()
        self.come_back_by_themselves()
        self.start_before_redis()
        self.stop_and_start()
        self.back_up_and_restore()
        self.remove()

    # --- building and starting ---

    def build(self) -> None:
        with claim("the image is built") as figures:
            self.engine.compose("build", seconds=900)
            base = os.environ.get("PYTHON_IMAGE", "python:3.13-slim")
            whole, below = (self._size(image) for image in (self._image(), base))
            figures.append(f"{whole:.0f} MB, of them {whole - below:.0f} MB ours")
            assert whole - below <= ADDED_MEGABYTES, "the image has grown"
            for tool in ("gcc", "cc", "make", "pip"):
                found = self.engine.docker("run", "--rm", self._image(), "sh", "-c", f"{tool} --version || echo none")
                assert found.endswith("none"), f"the image has {tool}: {found}"

        with claim("built once more from nothing it has the same files, byte for byte"):
            before = self._fingerprint()
            self.engine.compose("build", "--no-cache", "gateway", seconds=900)
            assert self._fingerprint() == before

    def start(self) -> None:
        with claim("docker compose up --wait: every service is healthy") as figures:
            began = time.monotonic()
            self._up()
            figures.append(f"up after {time.monotonic() - began:.1f} s")
            self._expect(EXPECTED)

    def confined(self) -> None:
        with claim("no container is root, may write to its root or has capabilities; ports are open on loopback alone"):
            for each in self.engine.containers():
                name, host = each["Name"], each["HostConfig"]
                assert each["Config"]["User"].split(":")[0] not in {"", "0", "root"}, name
                assert host["ReadonlyRootfs"], name
                assert host["CapDrop"] == ["ALL"], name
                assert not host["Privileged"], name
                assert host["Memory"] or host["NanoCpus"], name
                published = [entry for ports in each["NetworkSettings"]["Ports"].values() for entry in ports or ()]
                assert {entry["HostIp"] for entry in published} <= {"127.0.0.1"}, name
        with claim("Redis has a password, which its command line finds, and Grafana's is told once"):
            without = self.engine.compose(
                "exec", "-T", "-e", "REDISCLI_AUTH=x", "redis", "redis-cli", "ping", check=False
            )
            assert "WRONGPASS" in without.stdout + without.stderr, without.stdout
            assert self.engine.compose("exec", "-T", "redis", "redis-cli", "ping").stdout.strip() == "PONG"
            assert "user admin, password " in self.engine.compose("logs", "credentials").stdout

    # --- working ---

    def work(self) -> None:
        trace = secrets.token_hex(16)
        with claim("a task submitted through the published port completes"):
            self.kept.append(self._submit({"type": "process", "data": "to be"}, trace))
            self._all_completed(self.kept)
        with claim("one that fails is retried and reaches the dead letters"):
            failing = self._submit({"type": "process", "data": "", "max_retries": 1})
            wait_until(lambda: failing in str(self._get("/dlq/failed-tasks")), "it became a dead letter", 30)
        with claim("its trace is found where Jaeger's is, with both parts"):
            wait_until(lambda: self._services_of(trace) >= {"gateway", "worker"}, "the spans arrived", 30)
        with claim("Prometheus sees every target up"):
            self._targets(gateway=1, worker=1, housekeeper=2, dashboard=1)
        with claim("its rules and alerts are loaded, and none of them fails"):
            groups = self.engine.get("prometheus", "/api/v1/rules")["data"]["groups"]
            assert groups
            assert not [rule for group in groups for rule in group["rules"] if rule["health"] == "err"]
        with claim("the doctor finds nothing wrong, and warns of what is open and in the clear alone"):
            done = self.engine.compose("exec", "-T", "worker", "firmq", "doctor", "--json", check=False)
            assert done.returncode == 1, done.stdout
            doubtful = {each["check"] for each in json.loads(done.stdout)["checks"] if each["level"] != "ok"}
            assert doubtful == {"settings"}, done.stdout

    def logs(self) -> None:
        with claim("the lines of one task, of both parts, are found where Loki's are") as figures:
            task = self._submit({"type": "process", "data": "", "max_retries": 0})
            query = quote(f'{{service_namespace="firmq"}} | task_id="{task}"')

            def found() -> dict[str, int]:
                streams = self.engine.get("loki", f"/loki/api/v1/query_range?query={query}")["data"]["result"]
                return {each["stream"]["service_name"]: len(each["values"]) for each in streams}

            wait_until(lambda: "firmq-worker" in found(), "the lines arrived", 60)
            figures.append(f"lines by part: {found()}")

    def sign_in(self) -> None:
        with claim("the dashboard shows nothing without a sign-in, and health alone"):
            answer = self.engine.call("GET", "dashboard", "/")
            assert answer.status == 302, answer
            assert self.engine.call("GET", "dashboard", "/health/live").status == 200
        with claim("an admin and a viewer sign in at the identity provider and may do what their groups give"):
            pages = {name: self.engine.sign_in(name, oidc_provider.PASSWORD) for name in oidc_provider.GROUPS}
            for name, page in pages.items():
                assert f"{name}@example.com" in page, page[-2000:]
            assert "/queues/normal/pause" in pages["ann"], "an admin may pause a queue"
            assert "/queues/normal/pause" not in pages["eve"], "a viewer may not"
        with claim("a wrong password signs nobody in"):
            assert "@example.com" not in self.engine.sign_in("ann", "wrong")

    def alerts(self) -> None:
        words = "No worker is alive"
        with claim("without a worker one alert goes to the chat and one by mail, and with one again both are told"):
            self.engine.compose("stop", "worker")
            wait_until(lambda: self._told(words) == (1, 1), "both were told", 60)
            self.engine.compose("start", "worker")
            wait_until(lambda: self._told(f"Resolved: {words}") == (1, 1), "both were told that it is over", 60)
            assert self._told(words) == (2, 2), "each once when it begins, and once when it is over"

    def scale(self) -> None:
        with claim("docker compose up --scale worker=3: three work, and Prometheus sees them"):
            self._up("--no-recreate", "--scale", "worker=3")
            wait_until(
                lambda: sum(each["state"] not in ("silent", "lost") for each in self._get("/workers")["items"]) == 3,
                "three announced themselves",
                30,
            )
            self._targets(gateway=1, worker=3, housekeeper=2, dashboard=1)

    # --- dying ---

    def kill_a_worker(self) -> None:
        with claim("docker kill of a worker under load: nothing accepted is lost") as figures:
            ids = self._batch([{"type": "slowly", "data": {"seconds": 0.05}} for _ in range(1500)])
            wait_until(lambda: self._ended() > 100, "work was going on", 30)
            self.engine.docker("kill", self.engine.containers("worker")[0]["Id"])
            self.engine.compose("start", "worker")
            self._all_completed(ids)
            again = sum(task["attempt"] > 1 for task in self.engine.tasks(ids))
            figures.append(f"{len(ids)} tasks, {again} ran again")

    def kill_redis(self) -> None:
        with claim("docker kill of Redis under load: nothing accepted is lost") as figures:
            accepted, refused, over = list[str](), Counter[int](), threading.Event()

            def submit() -> None:
                while not over.is_set():
                    body = {"tasks": [{"type": "slowly", "data": {"seconds": 0.02}}] * 20}
                    answer = self.engine.call("POST", "gateway", "/tasks/batch", body)
                    if answer.status in {202, 207}:
                        accepted.extend(item["task_id"] for item in answer.json["items"] if "status" in item)
                    else:
                        refused[answer.status] += 1

            client = threading.Thread(target=submit)
            client.start()
            try:
                wait_until(lambda: len(accepted) >= 200, "work was going on", 30)
                self.engine.docker("kill", self.engine.containers("redis")[0]["Id"])
                wait_until(lambda: refused, "the gateway refused", 30)
                self.engine.compose("start", "redis")
                before = len(accepted)
                wait_until(lambda: len(accepted) >= before + 200, "the gateway accepted again", 60)
            finally:
                over.set()
                client.join()
            assert set(refused) == {503}, f"without Redis the gateway answers 503, not {refused}"
            self._all_completed(accepted)
            figures.append(f"{len(accepted)} tasks accepted, {refused[503]} requests answered 503")

    def come_back_by_themselves(self) -> None:
        with claim("a part whose process dies is started again without anybody's doing"):
            killer = "import os; os.kill(int(open('/proc/1/task/1/children').read().split()[0]), 9)"
            for service in ("gateway", "worker", "housekeeper", "dashboard"):
                victim = self.engine.containers(service)[0]
                # The container may end before the command in it has said that it went well.
                self.engine.docker("exec", victim["Id"], "python", "-c", killer, check=False)
                wait_until(partial(self._restarted, victim), f"{service} came back", 60)

    def start_before_redis(self) -> None:
        with claim("parts that start while Redis is away wait for it, as after a restart of the machine"):
            self.engine.compose("stop", "redis")
            self.engine.compose("restart", "gateway", "worker", "housekeeper", "dashboard")
            self.engine.compose("start", "redis")
            wait_until(self._all_healthy, "every container is healthy", 90)
            self._all_completed([self._submit({"type": "process", "data": "again"})])

    def stop_and_start(self) -> None:
        with claim("what runs is finished or given back before the containers end, none is killed") as figures:
            self.kept += self._batch([{"type": "slowly", "data": {"seconds": 2}} for _ in range(16)])
            wait_until(lambda: self._ended() > 0, "work was going on", 30)
            began = time.monotonic()
            self.engine.compose("stop")
            figures.append(f"stopped in {time.monotonic() - began:.1f} s")
            assert time.monotonic() - began <= LONGEST_STOP
            killed = [each["Name"] for each in self.engine.containers() if each["State"]["ExitCode"] == 137]
            assert not killed, f"killed after their grace period: {killed}"
        with claim("docker compose down leaves nothing but the data"):
            self.engine.compose("down")
            assert not self.engine.containers()
            assert not self.engine.left("network")
            assert self.engine.left("volume")
        with claim("after up everything is there, and what waited completes"):
            self._up()
            self._expect(EXPECTED)
            self._all_completed(self.kept)

    def back_up_and_restore(self) -> None:
        with tempfile.TemporaryDirectory() as folder, claim("a backup brings back what was there, and no more"):
            backup = Path(folder) / "backup.tar"
            self.engine.make("backup", TO=str(backup))
            later = self._submit({"type": "process", "data": "later"})
            self._all_completed([later])
            self.engine.make("restore", FROM=str(backup))
            wait_until(lambda: self.engine.call("GET", "gateway", "/health/ready").status == 200, "it is ready", 60)
            assert self.engine.call("GET", "gateway", f"/tasks/{later}").status == 404
            self._all_completed(self.kept)
            self._all_completed([self._submit({"type": "process", "data": "after"})])

    def remove(self) -> None:
        with claim("docker compose down --volumes leaves nothing at all"):
            self.engine.compose("down", "--volumes")
            assert not self.engine.containers()
            assert not self.engine.left("network")
            assert not self.engine.left("volume")

    # --- how it is asked ---

    def _up(self, *arguments: str) -> None:
        self.engine.compose("up", "-d", "--wait", *arguments)

    def _image(self) -> str:
        return os.environ.get("FIRMQ_IMAGE", "firmq:local")

    def _fingerprint(self) -> str:
        look = "find /app /opt/venv -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum"
        return self.engine.docker("run", "--rm", self._image(), "sh", "-c", look)

    def _size(self, image: str) -> float:
        return int(self.engine.docker("image", "inspect", "-f", "{{.Size}}", image)) / 1e6

    def _expect(self, services: Counter[str]) -> None:
        found = self.engine.containers()
        there = Counter(each["Config"]["Labels"]["com.docker.compose.service"] for each in found)
        assert there == services, there
        assert self._all_healthy()

    def _all_healthy(self) -> bool:
        states = [each["State"] for each in self.engine.containers()]
        # Loki's image has no program that a check could run; the container that writes passwords has ended.
        return all(
            each.get("Health", {"Status": "healthy"})["Status"] == "healthy"
            and (each["Running"] or each["ExitCode"] == 0)
            for each in states
        )

    def _get(self, path: str) -> Any:
        return self.engine.get("gateway", path)

    def _submit(self, task: dict[str, Any], trace: str = "") -> str:
        headers = {"traceparent": f"00-{trace}-{secrets.token_hex(8)}-01"} if trace else {}
        answer = self.engine.call("POST", "gateway", "/tasks", task, **headers)
        assert answer.status == 202, answer
        return str(answer.json["task_id"])

    def _batch(self, tasks: list[dict[str, Any]]) -> list[str]:
        answer = self.engine.call("POST", "gateway", "/tasks/batch", {"tasks": tasks})
        assert answer.status == 202, answer
        return [item["task_id"] for item in answer.json["items"]]

    def _ended(self) -> int:
        return sum(worker["completed"] for worker in self._get("/workers")["items"])

    def _all_completed(self, ids: list[str]) -> None:
        waiting = set(ids)

        def look() -> bool:
            for task in self.engine.tasks(sorted(waiting)):
                assert task.get("status") in {"pending", "running", "retrying", "completed"}, task
                if task["status"] == "completed":
                    waiting.discard(task["task_id"])
            return not waiting

        wait_until(look, f"all {len(ids)} tasks completed", 120)

    def _told(self, words: str) -> tuple[int, int]:
        """In how many lines of the chat and of mails these words are."""
        told = self.engine.get("inbox", "/received")
        chats, mails = (sum(words in line for text in told[each] for line in text.splitlines()) for each in told)
        return chats, mails

    def _services_of(self, trace: str) -> set[str]:
        found = self.engine.get("jaeger", f"/api/traces/{trace}")["data"]
        text = str(found)
        return {name for name in ("gateway", "worker") if name in text}

    def _targets(self, **wanted: int) -> None:
        def seen() -> bool:
            targets = self.engine.get("prometheus", "/api/v1/targets?state=active")["data"]["activeTargets"]
            up = Counter(target["labels"]["job"] for target in targets if target["health"] == "up")
            return sum(up.values()) == len(targets) and all(up[job] == number for job, number in wanted.items())

        wait_until(seen, f"Prometheus sees {wanted} and nothing down", 90)

    def _restarted(self, victim: dict[str, Any]) -> bool:
        state = next(each for each in self.engine.containers() if each["Id"] == victim["Id"])
        healthy = state["State"].get("Health", {}).get("Status") == "healthy"
        return healthy and bool(state["RestartCount"] > victim["RestartCount"])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.deployment.verify_compose")
    parser.add_argument("--beside", default="", help="words to put before each command, such as: ssh host")
    parser.add_argument("--file", action="append", default=[], help="a compose file to lay over the others")
    chosen = parser.parse_args(arguments)
    logs = "examples/logs/docker-compose.otlp.yml"
    files = ["docker-compose.yml", logs, "tests/deployment/verify.yml", *chosen.file]
    engine = Engine(shlex.split(chosen.beside), files=files)
    began = time.monotonic()
    try:
        Verification(engine).run()
    except BaseException:
        print(engine.compose("logs", "--tail", "20", check=False).stdout, file=sys.stderr)
        raise
    finally:
        _clean_up(engine)
    print(f"everything shown in {time.monotonic() - began:.0f} s")
    return 0


def _clean_up(engine: Engine) -> None:
    engine.compose("down", "--volumes", "--timeout", "5", check=False)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
