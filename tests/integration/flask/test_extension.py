"""The extension in one process: clients of apps, and handlers that run at submission."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from flask import Flask, current_app, g

from firmq import Client, LocalClient, use_client
from firmq.flask import Firmq
from firmq.worker.handlers.registry import REGISTRY
from tests.support import flask_project
from tests.support.flask_project import create_app, serial

MODULES = ["tests.support.flask_project"]


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    """What an app sets in the process ends with the test."""
    clients = use_client()
    yield
    use_client(*clients)
    REGISTRY.context = None


@pytest.fixture
def eager() -> LocalClient:
    """What `firmq_eager` is."""
    client = LocalClient(MODULES)
    use_client(client)
    return client


def test_each_app_has_a_client_of_its_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRMQ_URL", "http://of-the-environment:8000")
    queue = Firmq()
    for url, used in (("http://tasks.lan", "tasks.lan"), (None, "of-the-environment")):
        app = Flask(__name__)
        app.config.update(FIRMQ_URL=url, FIRMQ_API_KEY="key-7")
        queue.init_app(app)
        with app.app_context():
            assert isinstance(queue.client, Client)
            assert queue.client is current_app.extensions["firmq"]
            assert used in queue.client.transport.url
            assert queue.client.transport.headers["Authorization"] == "Bearer key-7"


def test_an_app_is_prepared_at_once_or_later() -> None:
    app = Flask(__name__)
    Firmq(app)
    assert isinstance(app.extensions["firmq"], Client)


def test_a_wrong_address_is_found_when_the_app_is_prepared() -> None:
    app = Flask(__name__)
    app.config["FIRMQ_URL"] = "localhost"
    with pytest.raises(ValueError, match="localhost"):
        Firmq(app)


def test_an_app_without_the_extension_is_told_what_to_call() -> None:
    with Flask(__name__).app_context(), pytest.raises(RuntimeError, match=r"call Firmq\(app\), or init_app\(app\)"):
        _ = Firmq().client


def test_handlers_submit_to_the_client_of_the_current_app() -> None:
    apps = [create_app("Shop"), create_app("Bakery")]
    clients = [LocalClient(MODULES), LocalClient(MODULES)]
    for app, client in zip(apps, clients, strict=True):
        app.extensions["firmq"] = client
        with app.app_context():
            flask_project.queue.submit("flask-serial", {"order": 7})
            serial.submit(order=8)
            asyncio.run(serial.submit_async(order=9))
    senders = [[client.result(task.task_id)[0] for task in client.tasks()] for client in clients]
    assert senders == [["Shop"] * 3, ["Bakery"] * 3], "handlers run in the app that submits"


def test_typed_submission_outside_an_app_says_so() -> None:
    create_app()
    with pytest.raises(RuntimeError, match="outside of application context"):
        serial.submit(order=7)


def test_a_client_that_was_chosen_before_is_kept(eager: LocalClient) -> None:
    with create_app().app_context():
        task = serial.submit(order=7)
    assert eager.result(task.task_id)[2] == "7 flask-serial"


@pytest.mark.parametrize("name", ["serial", "threads", "async"])
def test_handlers_have_a_context_at_submission(eager: LocalClient, name: str) -> None:
    create_app("Bakery")
    task = eager.submit(f"flask-{name}", {"order": 7})
    assert eager.result(task.task_id)[0] == "Bakery", "the app that was prepared last"


def test_a_context_ends_with_the_error_of_its_attempt(eager: LocalClient, caplog: pytest.LogCaptureFixture) -> None:
    create_app()
    with caplog.at_level("INFO"):
        task = eager.submit("flask-serial", {"order": -1})
    assert "context of -1 ends with ValueError('no order -1')" in caplog.messages
    [attempt] = eager.get(task.task_id).attempts
    assert attempt.error is not None
    assert attempt.error.type == "ValueError"


def test_a_handler_that_is_called_is_the_function_alone() -> None:
    with create_app().app_context():
        with pytest.raises(ValueError, match="no order -1"):
            serial(-1)
        assert g.order == -1, "it ran in the context of its caller"
