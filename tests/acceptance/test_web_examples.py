"""The web apps among the examples run as their READMEs say."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from flask.testing import FlaskClient

from examples.flask_app import create_app
from firmq import Client, LocalClient, use_client
from firmq.worker.handlers.registry import REGISTRY
from tests.acceptance.running import product
from tests.deployment import compose_file
from tests.deployment.compose_file import services
from tests.support.harness import ROOT, free_port, wait_until

FLASK = ROOT / "examples" / "flask_app"
FASTAPI = ROOT / "examples" / "fastapi_app"
OTHERS = "firmq.worker.handlers.examples"
"""A module with handlers that are not of the app."""
TEXT = "The queue is long.\n\nThe wait is short."


@contextmanager
def served(port: int, *command: str, **environment: str) -> Iterator[httpx.Client]:
    """A web server that was started as `python -m COMMAND`; a client of it."""
    process = subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, env={**os.environ, **environment})
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            wait_until(lambda: process.poll() is not None or _answers(http), "the server answers")
            yield http
    finally:
        process.terminate()
        assert process.wait(90) in (0, -signal.SIGTERM)  # uvicorn ends in order, and then by the signal


def _answers(http: httpx.Client) -> bool:
    with suppress(httpx.TransportError):
        return http.get("/").status_code < 500
    return False


# --- Flask ---


@pytest.fixture
def page() -> Iterator[FlaskClient]:
    """The app, whose tasks run when they are submitted."""
    app = create_app()
    app.extensions["firmq"] = LocalClient(["examples.flask_app.tasks", OTHERS])
    yield app.test_client()
    use_client()
    REGISTRY.context = None


def test_a_text_is_analysed_when_it_is_submitted(page: FlaskClient) -> None:
    answer = page.post("/", data={"text": TEXT}, follow_redirects=True)
    assert "8 words, 0.0 minutes to read" in answer.text
    assert "<tr><td>the</td><td>2</td></tr>" in answer.text


def test_there_is_no_page_without_a_text_or_an_analysis(page: FlaskClient) -> None:
    assert page.post("/", data={"text": " "}).status_code == 400
    other = page.application.extensions["firmq"].submit("process", "words")
    for task_id in ("01J0000000000000000000000", other.task_id):
        assert page.get(f"/analyses/{task_id}").status_code == 404


def test_without_a_gateway_the_page_asks_to_try_again(page: FlaskClient) -> None:
    closed = Client(f"http://127.0.0.1:{free_port()}", patience=0)
    page.application.extensions["firmq"] = closed
    answer = page.post("/", data={"text": TEXT})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


def flask_services() -> dict[str, Any]:
    """The services of the Compose file, laid over ours."""
    files = ["docker-compose.yml", str((FLASK / "docker-compose.flask.yml").relative_to(ROOT))]
    assert f"docker compose -f {files[0]} -f {files[1]} up" in (FLASK / "README.md").read_text()
    done = compose_file.read(files)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, "no warnings"
    there: dict[str, Any] = json.loads(done.stdout)["services"]
    return there


def test_the_compose_file_adds_a_confined_web_server_and_loads_the_app_in_the_worker() -> None:
    there = flask_services()
    web, worker = there["web"], there["worker"]
    assert there.keys() - services().keys() == {"web"}
    assert web["image"] == worker["image"]
    assert web["build"] == {**worker["build"], "args": {"PYTHON_IMAGE": worker["build"]["args"]["PYTHON_IMAGE"]}}
    for name in ("user", "read_only", "cap_drop", "security_opt", "init", "restart", "tmpfs"):
        assert web[name] == worker[name], name
    assert web["networks"].keys() == {"default"}, "Redis is for the parts"
    assert [each["host_ip"] for each in web["ports"]] == ["127.0.0.1"]
    assert web["depends_on"]["gateway"]["condition"] == "service_healthy"
    assert worker["environment"].items() >= {**services()["worker"]["environment"], **web["environment"]}.items()
    gateway = services()["gateway"]["environment"]["GATEWAY_PORT"]
    assert web["environment"]["FIRMQ_URL"] == f"http://gateway:{gateway}"
    for part in (web, worker):
        [mount] = [each for each in part["volumes"] if each["type"] == "bind"]
        assert Path(mount["source"]) == FLASK
        assert (mount["target"], mount["read_only"]) == ("/app/examples/flask_app", True)


def test_a_worker_analyses_a_text_for_the_page(tmp_path: Path) -> None:
    there = flask_services()
    app = {name: there["worker"]["environment"][name] for name in ("FLASK_APP", "TASK_MODULES")}
    [started] = re.findall(r"^(.*) make run", (FLASK / "README.md").read_text(), re.MULTILINE)
    assert dict(each.split("=") for each in started.split()) == app
    port = free_port()
    command = [each.replace("0.0.0.0:8080", f"127.0.0.1:{port}") for each in there["web"]["command"]]
    with (
        product(tmp_path, **app, FLASK_WORDS_PER_MINUTE="4") as running,
        served(port, *command, FIRMQ_URL=running.url) as http,
    ):
        wait_until(lambda: "analyse-text" in running.api.get("/types").text, "the worker's types are known")
        sent = http.post("/", data={"text": TEXT})
        assert sent.status_code == 303
        shown = wait_until(lambda: _shown(http, sent.headers["Location"]), "the analysis is there")
        assert "8 words, 2.0 minutes to read" in shown, "the worker has the configuration of the app"


def _shown(http: httpx.Client, location: str) -> str | None:
    page = http.get(location).text
    return None if "refresh" in page else page


# --- FastAPI ---


def test_a_worker_asks_the_carriers_for_a_quote(tmp_path: Path) -> None:
    readme = (FASTAPI / "README.md").read_text()
    modules, command = "examples.fastapi_app.tasks", "uvicorn examples.fastapi_app.app:app --port"
    assert f"TASK_MODULES={modules} make run" in readme
    assert f".venv/bin/{command} 9000" in readme
    port = free_port()
    carriers = f"http://127.0.0.1:{port}/demo-carriers"
    with (
        product(tmp_path, TASK_MODULES=f"{modules},{OTHERS}", CARRIER_URL=carriers) as running,
        served(port, *command.split(), str(port), FIRMQ_URL=running.url) as http,
    ):
        wait_until(lambda: "ask-carriers" in running.api.get("/types").text, "the worker's types are known")
        assert http.post("/quotes", json={"weight": 0, "country": "DE"}).status_code == 422
        created = http.post("/quotes", json={"weight": 2, "country": "DE"})
        assert created.status_code == 202
        quote = created.json()["id"]
        events = http.get(f"/quotes/{quote}/events")
        assert events.headers["Content-Type"].startswith("text/event-stream")
        seen = [json.loads(line.removeprefix("data: ")) for line in events.text.splitlines() if line]
        assert [each["progress"] for each in seen] == sorted(each["progress"] for each in seen)
        assert seen[-1] == {"id": quote, "status": "completed", "progress": 1.0, "prices": seen[-1]["prices"]}
        assert seen[-1]["prices"] == {"express": 10.5, "parcel": 5.2, "bicycle": 4.0}
        assert http.get(created.headers["Location"]).json() == seen[-1]
        other = running.api.post("/tasks", json={"type": "process", "data": "words"}).json()["task_id"]
        for task_id in ("01J0000000000000000000000", other):
            assert http.get(f"/quotes/{task_id}").status_code == 404
