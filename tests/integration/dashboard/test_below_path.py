"""The dashboard behind a proxy that serves it below a path, and how long it keeps connections."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from flask import Flask, Response, redirect
from werkzeug.test import Client

from firmq.dashboard.below_path import BelowPath
from firmq.shared.config.settings import load
from tests.integration.dashboard.test_serve import _answers
from tests.support.harness import System, free_port, wait_until

PAGE = (
    '<a href="/tasks">/tasks</a> <a href="//other">x</a> <form action="/" data-copy="/a"><b hx-get="/b" title="a="/c">'
)


def below(trusted: Iterable[str] = ("127.0.0.1",)) -> Client:
    app = Flask("page")
    app.config["MAX_CONTENT_LENGTH"] = 1
    app.add_url_rule("/", view_func=lambda: PAGE, endpoint="page")
    app.add_url_rule("/go", view_func=lambda: redirect("/tasks?a=1"), endpoint="go")
    app.add_url_rule("/away", view_func=lambda: redirect("https://login.example/"), endpoint="away")
    app.add_url_rule("/expired", view_func=lambda: Response(headers={"HX-Redirect": "/sign-in"}), endpoint="expired")
    app.add_url_rule("/text", view_func=lambda: Response(PAGE, mimetype="text/csv"), endpoint="text")
    return Client(BelowPath(app, list(trusted)))


def get(client: Client, path: str, prefix: str = "/tools/queue") -> Any:
    return client.get(path, headers={"X-Forwarded-Prefix": prefix}, environ_base={"REMOTE_ADDR": "127.0.0.1"})


def test_links_and_redirects_have_the_path() -> None:
    page = get(below(), "/")
    assert page.text == (
        '<a href="/tools/queue/tasks">/tasks</a> <a href="//other">x</a> <form action="/tools/queue/" '
        'data-copy="/a"><b hx-get="/tools/queue/b" title="a="/c">'
    )
    assert page.headers["Content-Length"] == str(len(page.data))
    assert get(below(), "/go").headers["Location"] == "/tools/queue/tasks?a=1"
    assert get(below(), "/away").headers["Location"] == "https://login.example/"
    assert get(below(), "/expired").headers["HX-Redirect"] == "/tools/queue/sign-in"
    assert get(below(), "/text").text == PAGE


def test_the_answer_to_head_has_the_length_of_the_page() -> None:
    client = below()
    head = client.head("/", headers={"X-Forwarded-Prefix": "/queue"}, environ_base={"REMOTE_ADDR": "127.0.0.1"})
    assert head.headers["Content-Length"] == get(client, "/", "/queue").headers["Content-Length"]
    assert head.data == b""


@pytest.mark.parametrize("prefix", ["//evil.example", "queue", '/"><script>', "/a b", "", "/", "https://evil.example"])
def test_another_value_is_no_path(prefix: str) -> None:
    assert get(below(), "/", prefix).text == PAGE


def test_only_a_trusted_proxy_names_the_path() -> None:
    assert get(below(["10.0.0.1"]), "/").text == PAGE


def test_every_link_of_the_pages_leads_below_the_path(system: System) -> None:
    port = free_port()
    system.start("dashboard", DASHBOARD_PORT=str(port))
    base = f"http://127.0.0.1:{port}"
    wait_until(lambda: _answers(f"{base}/health/ready"), "it is ready")
    for path in ("/", "/tasks", "/queues", "/workers", "/schedules", "/audit", "/nowhere"):
        request = urllib.request.Request(base + path, headers={"X-Forwarded-Prefix": "/queue"})
        try:
            page = urllib.request.urlopen(request, timeout=20).read().decode()
        except urllib.error.HTTPError as error:
            page = error.read().decode()
        links = re.findall(r"""[\w-]+=["'](/[^/"'][^"']*|/)["']""", page)
        assert links
        assert [link for link in links if not link.startswith("/queue/")] == []


@pytest.mark.parametrize(("part", "port"), [("gateway", "GATEWAY_PORT"), ("dashboard", "DASHBOARD_PORT")])
def test_an_idle_connection_is_kept_for_the_time_that_is_set(system: System, part: str, port: str) -> None:
    assert load({}).keep_alive_timeout > 60, "load balancers keep theirs for 60 s"
    short, long = free_port(), free_port()
    for at, seconds in ((short, "1"), (long, "600")):
        system.start(part, **{port: str(at), "KEEP_ALIVE_TIMEOUT": seconds, "GATEWAY_PROCESSES": "1"})
    for at in (short, long):
        wait_until(_reader(at), "it is ready")
    with socket.create_connection(("127.0.0.1", long)) as kept, socket.create_connection(("127.0.0.1", short)) as cut:
        for each in (kept, cut):
            each.settimeout(60)
            each.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert each.recv(9) == b"HTTP/1.1 "
        while cut.recv(65536):
            pass
        kept.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answers = b""
        while more := kept.recv(65536):
            answers += more
    assert answers.count(b'"status"') == 2


def _reader(port: int) -> Callable[[], bool]:
    return lambda: _answers(f"http://127.0.0.1:{port}/health/live")
