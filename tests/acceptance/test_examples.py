"""The examples run as their README says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.acceptance.running import product
from tests.deployment import compose_file
from tests.support.harness import ROOT, free_port, wait_until

EXAMPLE = "examples.distributed_queue"
README = (ROOT / "examples" / "distributed_queue" / "README.md").read_text()


def test_a_leader_enqueues_what_workers_of_their_own_run(tmp_path: Path) -> None:
    for mode in ("worker", "leader"):
        assert f"python -m {EXAMPLE} {mode} " in README
    with product(tmp_path, TASK_MODULES="firmq.worker.handlers.examples") as running:
        worker = subprocess.Popen(
            [sys.executable, "-m", EXAMPLE, "worker", "--concurrency", "2"],
            env={"PATH": "/usr/bin:/bin", "REDIS_URL": running.redis_url, "WORKER_METRICS_PORT": "0"},
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )
        try:
            leader = [sys.executable, "-m", EXAMPLE, "leader", "--url", running.url, "--orders", "30"]
            wait_until(lambda: "count-executions" in running.api.get("/types").text, "the worker's types are known")
            done = subprocess.run(leader, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
            assert done.stdout.startswith("enqueued 30 of 30 executions as batch "), done.stderr
            assert done.stdout.endswith("100% {'completed': 29, 'failed': 1}\n")
            assert done.returncode == 1, "order 13 failed"
            failed = running.api.get("/dlq/failed-tasks").json()["items"]
            assert [each["error"]["type"] for each in failed] == ["GiveUp"]
        finally:
            worker.terminate()
            assert worker.wait(90) == 0


SHOP = ROOT / "examples" / "django_shop"
SHOP_README = (SHOP / "README.md").read_text()
PYTHON = "../../.venv/bin/python "


def shop_command(words: str) -> list[str]:
    """A command of the shop's README."""
    assert f"{PYTHON}{words}" in SHOP_README
    return [sys.executable, *words.split()]


@contextmanager
def started(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[None]:
    """A part of the shop that runs until it is told to stop."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=SHOP, env=environment, stdout=out, stderr=out)
        try:
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait(90) in (0, -signal.SIGTERM), log.read_text()
        finally:
            process.kill()
            process.wait()


def _answers(shop: httpx.Client) -> bool:
    try:
        return shop.get("/orders/0").status_code == 404
    except httpx.TransportError:
        return False


def test_a_shop_in_django_runs_tasks_of_both_kinds(tmp_path: Path) -> None:
    port = free_port()
    with product(tmp_path) as running, ExitStack() as parts:
        environment = {
            "PATH": "/usr/bin:/bin",
            "SHOP_DATABASE": str(tmp_path / "shop.sqlite3"),
            "REDIS_URL": running.redis_url,
            "FIRMQ_URL": running.url,
            "WORKER_METRICS_PORT": "0",
        }
        subprocess.run(shop_command("manage.py migrate"), cwd=SHOP, env=environment, check=True, capture_output=True)
        worker, site = shop_command("manage.py firmq_worker"), shop_command("manage.py runserver --noreload 9000")
        parts.enter_context(started(worker, tmp_path / "worker.log", environment))
        parts.enter_context(started([*site[:-1], str(port)], tmp_path / "site.log", environment))
        wait_until(lambda: "worker.tasks.send_receipt" in running.api.get("/types").text, "the types are known")
        shop = parts.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60))
        wait_until(lambda: _answers(shop), "the shop answers")
        order = shop.post("/orders", content='{"prices": [1250, 499]}').json()["order"]
        wait_until(lambda: all(shop.get(f"/orders/{order}").json().values()), "both tasks have run")
        assert shop.get(f"/orders/{order}").json() == {
            "total": "17.49 EUR",
            "invoice": f"Invoice {order}: 17.49 EUR",
            "receipt": f"receipt of order {order} (de)",
        }
        [receipt] = running.api.get("/tasks", params={"type": "worker.tasks.send_receipt"}).json()["items"]
        assert receipt["queue"] == "high"


def test_the_shop_runs_in_an_image_of_its_own() -> None:
    files = ["docker-compose.yml", "examples/django_shop/docker-compose.django.yml"]
    assert f"docker compose -f {files[0]} -f {files[1]} up" in SHOP_README
    done = compose_file.read(files, {**compose_file.PASSWORDS, "SHOP_DATABASE_PASSWORD": "for-a-test"})
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    there, base = json.loads(done.stdout)["services"], compose_file.services()
    assert there.keys() - base.keys() == {"database", "migrate", "web"}
    assert {name for name, each in there.items() if each.get("image") == "django-shop:local"} == {
        "migrate",
        "web",
        "worker",
    }
    for name in ("database", "migrate", "web", "worker"):
        for option in ("read_only", "cap_drop", "security_opt", "init"):
            assert there[name][option] == base["worker"][option], (name, option)
        assert name == "worker" or there[name]["networks"].keys() == {"default"}, "Redis is for the parts"
    assert there["worker"]["environment"].items() >= there["web"]["environment"].items()
    assert [each["host_ip"] for each in there["web"]["ports"]] == ["127.0.0.1"]
    hadolint = subprocess.run(
        [Path(sys.executable).parent / "hadolint", "--ignore", "DL3006", "--ignore", "DL3013", SHOP / "Dockerfile"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert hadolint.returncode == 0, hadolint.stdout


@pytest.mark.parametrize("words", ["manage.py test worker", "-m mypy"])
def test_the_shop_passes_its_tests_and_strict_types(tmp_path: Path, words: str) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO", "TASK"))}
    environment = {**clean, "SHOP_DATABASE": str(tmp_path / "shop.sqlite3"), "MYPY_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        shop_command(words), cwd=SHOP, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
