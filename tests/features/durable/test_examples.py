"""The approval and the agent of the examples do what their READMEs say, at a worker that is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from firmq import Client
from tests.acceptance.running import Product, product
from tests.features.durable.test_order_saga import _ended
from tests.support.harness import ROOT, free_port, wait_until


def process(*module: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", *module],
        env={
            "PATH": os.environ["PATH"],
            "WORKER_METRICS_PORT": "0",
            "LEASE_TIME": "3",
            "WORKER_EXECUTORS": "2",
            **environment,
        },
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )


@contextmanager
def stopping(started: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Ends the processes of the list, those too that were added meanwhile."""
    try:
        yield
    finally:
        for each in started:
            each.terminate()
        for each in started:
            each.wait(90)


def submitted(running: Product, kind: str, **data: object) -> str:
    wait_until(lambda: kind in running.api.get("/types").text, "the worker's types are known")
    answer = running.api.post("/tasks", json={"type": kind, "data": data})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["task_id"])


def test_an_expense_is_paid_when_a_manager_agrees_and_mails_are_sent_once(tmp_path: Path) -> None:
    example, mailbox = "examples.expense_approval", tmp_path / "mailbox"
    assert f"firmq worker {example}.tasks" in (ROOT / "examples" / "expense_approval" / "README.md").read_text()
    mailbox.touch()
    with product(
        tmp_path, TASK_MODULES="firmq.worker.handlers.examples", HOUSEKEEPER_TIMEOUT_INTERVAL="0.3"
    ) as running:
        settings = {"REDIS_URL": running.redis_url, "EXPENSE_MAILBOX": str(mailbox)}
        workers = [process("firmq", "worker", f"{example}.tasks", **settings)]
        with stopping(workers):
            task = submitted(running, "expense", expense=7, amount=80, patience=5.0)
            wait_until(
                lambda: running.api.get(f"/tasks/{task}").json()["awaits"] == "signal:decision-2", "Bob is asked", 60
            )
            late = running.api.post(f"/tasks/{task}/signals/decision-1", json={"data": {"approved": False}})
            assert late.status_code == 409, "Ann is too late"
            workers[0].kill()
            decision = {"data": {"approved": True}}
            agreed = [f"decision-{number}" for number in (2, 3)]
            accepted = [running.api.post(f"/tasks/{task}/signals/{each}", json=decision).status_code for each in agreed]
            assert 200 in accepted
            workers.append(process("firmq", "worker", f"{example}.tasks", **settings))
            ended = wait_until(partial(_ended, running, task), "it ended", 60)
    assert ended["result"]["approved"] is True
    lines = mailbox.read_text().splitlines()
    assert len(lines) == len(set(lines)), "each mail once"
    assert lines.count("paid 7 80") == 1


def test_an_agent_asks_its_model_once_per_turn_and_streams_what_that_says(tmp_path: Path) -> None:
    example, port = "examples.agent", free_port()
    assert f"firmq worker {example}.tasks" in (ROOT / "examples" / "agent" / "README.md").read_text()
    with product(
        tmp_path, TASK_MODULES="firmq.worker.handlers.examples", HOUSEKEEPER_TIMEOUT_INTERVAL="0.3"
    ) as running:
        settings = {"REDIS_URL": running.redis_url, "MODEL_URL": f"http://127.0.0.1:{port}"}
        workers = [
            process(f"{example}.model_server", str(port)),
            process("firmq", "worker", f"{example}.tasks", **settings),
        ]
        with stopping(workers), Client(str(running.api.base_url)) as client:
            task = submitted(running, "agent", question="How many people live in the capital of France?")
            stream = client.stream(task)
            first = next(stream)
            assert (first.attempt, first.chunk) == (1, "SEARCH ")
            workers[1].kill()
            workers.append(process("firmq", "worker", f"{example}.tasks", **settings))
            said = [first, *stream]
            ended = wait_until(partial(_ended, running, task), "it ended", 60)
    answer = "Paris is the capital of France. Paris has about two million inhabitants."
    assert ended["result"] == answer
    last = said[-1].attempt
    assert "".join(each.chunk for each in said if each.attempt == last) == answer
    steps = [each["name"] for each in ended["steps"]]
    assert steps == ["model-0", "search-0", "search-0:gathered", "model-1"]
