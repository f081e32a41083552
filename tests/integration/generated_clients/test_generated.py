"""Clients that three generators make of our OpenAPI document compile, submit, list and retry.

The two for TypeScript come by npm, as `package-lock.json` pins them, into the environment in .venv, once.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.support import one_slot
from tests.support.harness import ROOT, free_port, running_system, wait_until

HERE = Path(__file__).resolve().parent
NODE = ROOT / ".venv" / "clients"
OLDEST_NODE = 20
DONE = {"completed": True, "listed": True, "dead": True, "retried": True, "batch": True}
PYTHON = """
import json, sys
from generated import Client
from generated.api.batches import post_tasks_batch
from generated.api.dead_letters import get_dlq_failed_tasks, post_dlq_failed_tasks_task_id_retry
from generated.api.tasks import get_tasks, get_tasks_task_id_result, post_tasks
from generated.models import BatchBody, NewTaskBody

with Client(base_url=sys.argv[1]) as client:
    def run(body):
        task_id = post_tasks.sync(client=client, body=body).task_id
        return task_id, get_tasks_task_id_result.sync(task_id, client=client, wait=30).status

    fine, ended = run(NewTaskBody(type_="noop", data=None))
    failed, how = run(NewTaskBody(type_="fail", data={}, max_retries=0))
    dead = [each.task_id for each in get_dlq_failed_tasks.sync(client=client).items]
    again = post_dlq_failed_tasks_task_id_retry.sync(failed, client=client)
    print(json.dumps({
        "completed": ended == "completed",
        "listed": fine in [each.task_id for each in get_tasks.sync(client=client).items],
        "dead": how == "failed" and failed in dead,
        "retried": again.status == "pending",
        "batch": post_tasks_batch.sync(
            client=client, body=BatchBody.from_dict({"tasks": [{"type": "noop", "data": 1}]})
        ).accepted == 1,
    }))
"""


@pytest.fixture(scope="module")
def gateway(redis_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running system."""
    redis_server.start()
    port = free_port()
    with one_slot.client_of(redis_server) as client:
        client.flushall()
        with running_system(client, one_slot.url_of(redis_server), tmp_path_factory.mktemp("system")) as system:
            system.start("gateway", GATEWAY_PORT=str(port), GATEWAY_PROCESSES="1")
            system.start_worker(WORKER_EXECUTORS="2")
            address = f"http://127.0.0.1:{port}"
            wait_until(lambda: _ready(address), "the gateway is ready")
            yield address


def _ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health/ready").status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def document(gateway: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("document") / "openapi.json"
    file.write_text(httpx.get(f"{gateway}/openapi.json", timeout=60).text)
    return file


def call(*command: str | Path, folder: Path) -> str:
    done = subprocess.run(
        command, check=False, cwd=folder, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_a_python_client_submits_lists_and_retries(gateway: str, document: Path, tmp_path: Path) -> None:
    said = call(
        Path(sys.executable).with_name("openapi-python-client"),
        *("generate", "--path", document, "--meta", "none", "--output-path", tmp_path / "generated"),
        folder=tmp_path,
    )
    assert "WARNING" not in said, said
    assert "Unsupported" not in said, said
    (tmp_path / "program.py").write_text(PYTHON)
    assert json.loads(call(sys.executable, "program.py", gateway, folder=tmp_path)) == DONE


@pytest.fixture(scope="module")
def typescript(document: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both clients for TypeScript, compiled, strictly, with a program for each."""
    tools = _node_tools()
    folder = tmp_path_factory.mktemp("typescript")
    for each in ("package.json", "tsconfig.json", "fetch_client.ts", "hey_client.ts"):
        shutil.copy(HERE / each, folder)
    (folder / "node_modules").symlink_to(tools / "node_modules")
    programs = tools / "node_modules" / ".bin"
    call(programs / "openapi-typescript", document, "-o", "schema.d.ts", folder=folder)
    call(programs / "openapi-ts", "-i", document, "-o", "hey", "-c", "@hey-api/client-fetch", folder=folder)
    _import_with_endings(folder / "hey")
    call(programs / "tsc", folder=folder)
    return folder


def _import_with_endings(folder: Path) -> None:
    """Node wants the ending of a file that is imported; a bundler, for which this client is made, does not."""
    for file in folder.rglob("*.ts"):
        text = re.sub(r"""(from ['"]\.[^'"]*?)(\.js)?(['"])""", r"\1.js\3", file.read_text())
        file.write_text(text.replace("'./client.js'", "'./client/index.js'").replace("'../client.js'", "'../index.js'"))


def _node_tools() -> Path:
    """Where npm has put what package-lock.json pins; it is asked only when that has changed."""
    if not shutil.which("npm") or int(call("node", "--version", folder=HERE)[1:].partition(".")[0]) < OLDEST_NODE:
        pytest.skip(f"Node {OLDEST_NODE} or newer with npm is needed")
    lock, marker = (HERE / "package-lock.json").read_text(), NODE / "installed"
    if not marker.exists() or marker.read_text() != lock:
        NODE.mkdir(exist_ok=True)
        for each in ("package.json", "package-lock.json"):
            shutil.copy(HERE / each, NODE)
        call("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", folder=NODE)
        marker.write_text(lock)
    return NODE


@pytest.mark.parametrize("program", ["fetch_client", "hey_client"])
def test_a_typescript_client_submits_lists_and_retries(gateway: str, typescript: Path, program: str) -> None:
    assert json.loads(call("node", typescript / "built" / f"{program}.js", gateway, folder=typescript)) == DONE


def test_the_document_declares_no_default_of_a_body_and_one_media_type(document: Path) -> None:
    """A default that is declared is sent by some generators, and makes its field required for others."""
    found = json.loads(document.read_text())
    schemas = found["components"]["schemas"]
    assert set(schemas["NewTaskBody"]["required"]) == {"type", "data"}
    properties = [each for model in schemas.values() for each in model.get("properties", {}).values()]
    assert not [each for each in properties if "default" in each]
    bodies = [
        about["requestBody"] for path in found["paths"].values() for about in path.values() if "requestBody" in about
    ]
    assert {tuple(each["content"]) for each in bodies} == {("application/json",)}
