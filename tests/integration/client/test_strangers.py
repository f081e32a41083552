"""What is no gateway, and keys and addresses that cannot be right: said in words, without a secret in them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from firmq.shared.cli.main import main
from firmq.shared.client import Client, ClientError, NoGateway, Problem, new_task
from tests.support.harness import free_port

KEY = "fq_0123456789_verysecret"
EVENT = b"event: end\nid: 1\ndata: <html>\n\n"


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[str]:
    """The address of something that gives everybody this answer."""

    class Stranger(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))  # what is not read resets the connection
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815  # the names that http.server calls

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


ASKING: dict[str, Callable[[Client], object]] = {
    "submit": lambda client: client.submit("echo", 1),
    "cancel": lambda client: client.cancel("x"),
    "list": lambda client: next(client.tasks()),
    "watch": lambda client: list(client.watch("x")),
    "batch": lambda client: client.batch([new_task("echo", 1)]).drain(),
}


@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING)
def test_a_redirect_is_no_answer_and_says_where_it_leads(
    asking: Callable[[Client], object], client_class: type[Client]
) -> None:
    with (
        answering(301, b"<html>moved</html>", location="https://elsewhere.example/tasks") as url,
        client_class(url) as client,
        pytest.raises(Problem, match=r"redirected to https://elsewhere.example/tasks: use the address"),
    ):
        asking(client)


@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING)
@pytest.mark.parametrize("body", [b"<html>sign in</html>\n", b"[1]\n"])
def test_a_page_is_no_answer(asking: Callable[[Client], object], body: bytes, client_class: type[Client]) -> None:
    with (
        answering(200, body, Content_Type="text/html") as url,
        client_class(url) as client,
        pytest.raises(NoGateway, match="is not a gateway"),
    ):
        asking(client)


@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING)
@pytest.mark.parametrize(
    "body", [b'{"a":1}', b'{"items":5,"batch_id":"b","task_id":"t","status":[]}', b"[" * 100_000], ids=lambda b: b[:9]
)
def test_json_of_another_form_is_no_answer(
    asking: Callable[[Client], object], body: bytes, client_class: type[Client]
) -> None:
    with (
        answering(200, body, Content_Type="application/json") as url,
        client_class(url) as client,
        pytest.raises(NoGateway, match="is not a gateway"),
    ):
        asking(client)


@pytest.mark.parametrize("body", [b'{"title":"no","status":"odd","errors":5,"retry_after":{}}', b"[" * 100_000])
def test_a_refusal_of_another_form_is_a_problem(body: bytes, client_class: type[Client]) -> None:
    with (
        answering(503, body, Content_Type="application/json") as url,
        client_class(url, patience=0.1) as client,
    ):
        for asking in ASKING.values():
            with pytest.raises(Problem) as refused:
                asking(client)
            assert (refused.value.status, refused.value.errors) == (503, [])


def test_events_of_something_else_are_no_answer(client_class: type[Client]) -> None:
    with (
        answering(200, EVENT, Content_Type="text/event-stream") as url,
        client_class(url) as client,
        pytest.raises(NoGateway),
    ):
        ASKING["watch"](client)


def test_streams_that_say_nothing_use_patience_up(client_class: type[Client]) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with (
        answering(200, b"", Content_Type="text/event-stream") as url,
        client_class(url, patience=20, sleep=sleep, clock=lambda: now[0]) as client,
        pytest.raises(ClientError, match="cut off"),
    ):
        list(client.watch("x"))
    assert now[0] <= 20


def test_the_command_says_that_no_gateway_answers_with_status_5(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(200, b"<html>sign in</html>", Content_Type="text/html") as url:
        assert main(["--url", url, "cancel", "x"]) == 5
    assert "is not a gateway" in capsys.readouterr().err


@pytest.mark.parametrize("around", ["{}\n", " {}\r\n", "\ufeff{}", "{}\n{}", "Bearer {}", "{}\x07", "{}\u2028"])
def test_a_key_with_something_around_it_is_used_without_or_refused_without_being_shown(
    around: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FIRMQ_API_KEY", around.replace("{}", KEY))
    status = main(["--url", f"http://127.0.0.1:{free_port()}", "--patience", "0", "list"])
    said = "".join(capsys.readouterr())
    assert KEY not in said
    if around.strip() == "{}":
        assert status == 5, "it was used"
        with Client() as client:
            assert client.transport.headers["Authorization"] == f"Bearer {KEY}"
    else:
        assert (status, "the API key has" in said) == (2, True)


@pytest.mark.parametrize(
    "url",
    ["http://ann:s3cret@host", "http://s3cret@host", "ann:s3cret@host", "http://a:/s3cret@host", "http://[a:s3cret@h"],
)
def test_a_password_in_the_address_is_refused_without_being_shown(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", url, "list"]) == 2
    said = "".join(capsys.readouterr())
    assert "s3cret" not in said
    assert "FIRMQ_API_KEY" in said
