"""`firmq gateway` as a process: starting, refusing to start, slow and wrong callers, and stopping."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis

from firmq.dashboard.server import Server as DashboardServer
from firmq.gateway.http.server import Server
from firmq.shared.http import server as intake
from firmq.shared.stores.api_keys import Scope, new_key
from firmq.shared.stores.task_types import TaskType, TaskTypes
from tests.support.harness import ROOT, System, alive, free_port, wait_until

NEW = json.dumps({"type": "process", "data": 1}).encode()
HEAD = b"POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
OLD = HEAD.replace(b"1.1", b"1.0") + b"Connection: keep-alive\r\n"
Answer = tuple[int, dict[str, str], bytes]


class Running:
    """A gateway that serves."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with closing(connection):
            connection.request(method, path, body, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def say(self, data: bytes) -> bytes:
        """Everything that is answered until the connection is closed."""
        with self.connect() as connection:
            connection.sendall(data)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    @property
    def workers(self) -> list[int]:
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def start(system: System, **environment: str) -> Running:
    """A gateway of two processes."""
    port = free_port()
    process = system.start(
        "gateway", GATEWAY_PORT=str(port), GATEWAY_PROCESSES="2", MAX_BODY_BYTES="100000", **environment
    )
    gateway = Running(process, port)
    wait_until(lambda: serves(gateway), f"the gateway serves\n{system.logs()}")
    return gateway


@pytest.fixture
def mortal(system: System, redis_client: Redis) -> Running:
    """A gateway that a test may stop and kill."""
    TaskTypes(redis_client).publish([TaskType(name="process", schema={})])
    return start(system)


def serves(gateway: Running) -> bool:
    assert gateway.process.poll() is None
    try:
        return len(gateway.workers) == 2 and gateway.ask("GET", "/health/live")[0] == 200
    except OSError:
        return False


def refuses(gateway: Running) -> bool:
    try:
        gateway.connect().close()
    except ConnectionRefusedError:
        return True
    return False


def status_of(raw: bytes) -> int:
    return int(raw.split(b" ", 2)[1])


def test_the_public_port_has_all_but_the_metrics(system: System, redis_client: Redis) -> None:
    TaskTypes(redis_client).publish([TaskType(name="process", schema={})])
    inside = start(system, GATEWAY_PUBLIC_PORT=str(port := free_port()))
    public = Running(inside.process, port)
    assert b"process_start_time_seconds" in inside.ask("GET", "/metrics")[2]
    for path in ("/metrics", "/metrics?parts=gateway", "//metrics", "/%6detrics"):
        status, _, body = public.ask("GET", path, Host=f"localhost:{inside.port}", **{"X-Forwarded-Port": "1"})
        assert (status, b"process_start_time_seconds" in body) == (404, False)
    assert public.ask("POST", "/tasks", NEW)[0] == 202
    with public.connect() as slow:
        slow.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(NEW))
        inside.process.send_signal(signal.SIGTERM)
        wait_until(lambda: refuses(public), "it accepts nothing more")
        slow.sendall(NEW)
        assert status_of(slow.recv(1000)) == 202
    assert inside.process.wait(30) == 0


def start_and_wait(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "firmq", "gateway"],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# --- refusing to start ---


def test_listening_beyond_loopback_requires_keys_or_consent() -> None:
    ended = start_and_wait(BIND_HOST="0.0.0.0", GATEWAY_PORT=str(free_port()))
    assert ended.returncode == 2
    assert "ALLOW_ANONYMOUS=true" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_with_keys_it_listens_beyond_loopback_and_requires_one(system: System, tmp_path: Path) -> None:
    key, text = new_key("shop", [Scope.READ])
    (tmp_path / "keys").write_text(key.line)
    port = free_port()
    system.start(
        "gateway",
        BIND_HOST="0.0.0.0",
        GATEWAY_PORT=str(port),
        GATEWAY_PROCESSES="2",
        API_KEYS_FILE=str(tmp_path / "keys"),
    )

    def status(path: str, **headers: str) -> int:
        try:
            return httpx.get(f"http://127.0.0.1:{port}{path}", headers=headers, timeout=60).status_code
        except httpx.TransportError:
            return 0

    wait_until(lambda: status("/health/live") == 200, "the gateway answers")
    assert status("/tasks") == 401
    assert status("/tasks", Authorization=f"Bearer {text}") == 200
    assert '"api_keys": "required"' in system.logs()
    assert text not in system.logs()


@pytest.mark.parametrize("content", ["", "nonsense"])
def test_a_file_without_good_keys_is_a_mistake_that_names_it(content: str, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(content)
    ended = start_and_wait(API_KEYS_FILE=str(tmp_path / "keys"), GATEWAY_PORT=str(free_port()))
    assert ended.returncode == 2
    assert "API_KEYS_FILE: " in ended.stderr
    assert "firmq keys create" in ended.stderr


def test_a_taken_port_is_one_line_that_says_what_to_do() -> None:
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        ended = start_and_wait(GATEWAY_PORT=str(other.getsockname()[1]))
    assert ended.returncode == 2
    assert "GATEWAY_PORT" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_wrong_settings_end_it_with_status_2() -> None:
    ended = start_and_wait(GATEWAY_PORT="x", MAX_RETRIES="-1")
    assert ended.returncode == 2
    assert "GATEWAY_PORT" in ended.stderr
    assert "MAX_RETRIES" in ended.stderr


# --- serving ---


def test_tasks_are_taken_and_every_process_counts_on_the_same_page(mortal: Running) -> None:
    for _ in range(20):
        assert mortal.ask("POST", "/tasks", NEW)[0] == 202
    page = mortal.ask("GET", "/metrics")[2].decode()
    assert 'task_submissions_total{priority="normal",type="process"} 20.0' in page


def test_a_process_that_dies_is_replaced_and_its_counts_stay(mortal: Running) -> None:
    for _ in range(10):
        mortal.ask("POST", "/tasks", NEW)
    for count in (10, 11, 12):
        before = mortal.workers
        folder = counts_of(before)
        os.kill(before[0], signal.SIGKILL)
        wait_until(partial(replaced, mortal, before[0]), "another took its place")
        wait_until(lambda: serves(mortal), "it serves")
        page = mortal.ask("GET", "/metrics")[2].decode()
        assert f'task_submissions_total{{priority="normal",type="process"}} {count}.0' in page
        assert not list(folder.glob(f"*_{before[0]}.db")), "what it counted is with those that are gone"
        mortal.ask("POST", "/tasks", NEW)


def replaced(gateway: Running, pid: int) -> bool:
    return len(gateway.workers) == 2 and pid not in gateway.workers


def test_it_starts_and_answers_without_redis(system: System) -> None:
    port = free_port()
    process = system.start("gateway", GATEWAY_PORT=str(port), REDIS_URL=f"redis://127.0.0.1:{free_port()}/0")
    gateway = Running(process, port)
    wait_until(lambda: len(gateway.workers) >= 1 and reachable(gateway), "it answers")
    status, headers, body = gateway.ask("POST", "/tasks", NEW)
    assert (status, headers["Retry-After"]) == (503, "1")
    assert json.loads(body)["type"] == "/problems/store-unavailable"


def reachable(gateway: Running) -> bool:
    try:
        return gateway.ask("GET", "/health/live")[0] == 200
    except OSError:
        return False


# --- slow and wrong callers ---


@pytest.mark.alone
def test_slow_clients_do_not_block_others(running: Running) -> None:
    slow = [running.connect() for _ in range(400)]
    try:
        for at, connection in enumerate(slow):
            connection.sendall(b"POST /tasks HTT" if at % 2 else HEAD + b'Content-Length: 100\r\n\r\n{"type"')
        times = []
        for _ in range(30):
            begun = time.monotonic()
            assert running.ask("POST", "/tasks", NEW)[0] == 202
            times.append(time.monotonic() - begun)
        assert max(times) < 1
    finally:
        for connection in slow:
            connection.close()


def test_a_request_that_arrives_too_slowly_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "receive_seconds", 0.0)
    server = idle_server()
    with closing(socket.create_connection(server.socket.getsockname())) as caller:
        caller.sendall(b"GET / HTTP/1.1\r\nX: ")
        wait_until(lambda: arriving(server), "the server reads it")
        server.maintenance(time.monotonic())
        assert caller.recv(10) == b""
    server.close()


def test_a_request_behind_one_that_waits_is_not_cut_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "receive_seconds", 0.0)
    may_answer = threading.Event()
    server = idle_server(wait=may_answer.wait)
    with closing(socket.create_connection(server.socket.getsockname())) as caller:
        caller.sendall(b"GET /one HTTP/1.1\r\n\r\nGET /two HTTP/1.1\r\n")
        wait_until(lambda: arriving(server), "the server reads it")
        server.maintenance(time.monotonic())
        assert server.active_channels
        may_answer.set()
        wait_until(lambda: turned(server) and readable(caller), "the first is answered")
        assert status_of(caller.recv(4096)) == 200
    server.close()


def idle_server(
    max_body: int = 1000,
    kind: type[intake.Server] = Server,
    served: list[str] | None = None,
    wait: Callable[[], object] = bool,
) -> intake.Server:
    class App:
        config = {"MAX_CONTENT_LENGTH": max_body}  # noqa: RUF012  # like Flask's

        def __call__(self, environ: Any, start_response: Callable[..., object]) -> list[bytes]:
            wait()
            start_response("200 OK", [("Content-Length", str(len(ANSWER)))])
            (served if served is not None else []).append(environ["PATH_INFO"])
            return [ANSWER]

    listener = socket.create_server(("127.0.0.1", 0))
    return kind(App(), listener, threads=1)


def arriving(server: intake.Server) -> bool:
    server.turn(0.1)
    return any(channel.request is not None for channel in server.active_channels.values())


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (HEAD + b"Content-Length: 21\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (OLD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n12345", 400),
        (HEAD + b"Content-Length: -5\r\n\r\n", 400),
        (HEAD + b"Content-Length: 0x5\r\n\r\n", 400),
        (HEAD + b"Content-Length: " + b"1" * 5000 + b"\r\n\r\n", 400),
        (b"GET http://[::1/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (HEAD + b"X-Folded: a\r\n b\r\nContent-Length: 0\r\n\r\n", 400),
        (HEAD + b"X-Bare: a\nX-Evil: b\r\nContent-Length: 0\r\n\r\n", 400),
        (HEAD + b"X-Nul: a\x00b\r\nContent-Length: 0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: gzip\r\n\r\n", 501),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (HEAD + b"X-Long: " + b"a" * 100_000 + b"\r\n\r\n", 431),
        (HEAD + b"X: y\r\n" * 6000 + b"\r\n", 431),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
    ],
)
def test_ambiguous_http_is_refused(running: Running, request_head: bytes, status: int) -> None:
    raw = running.say(request_head)
    assert status_of(raw) == status
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    assert json.loads(body)["status"] == status
    assert b"\r\nX-Evil" not in head


@pytest.mark.parametrize("kind", [Server, DashboardServer], ids=["gateway", "dashboard"])
def test_chunks_in_http_1_0_are_not_read_as_a_request(kind: type[intake.Server]) -> None:
    server = idle_server(kind=kind)
    parser = kind.channel_class.parser_class(server.adj)
    parser.received(OLD + b"Transfer-Encoding: chunked\r\n\r\n")
    assert parser.completed
    assert parser.error is not None
    assert parser.error.code == 400
    server.close()


@pytest.mark.parametrize("size", [100_001, 20_000_000])
def test_a_body_that_is_too_large_is_refused_once_the_caller_can_hear_it(running: Running, size: int) -> None:
    status, headers, body = running.ask("POST", "/tasks", b"x" * size)
    assert (status, headers["Connection"]) == (413, "close")
    assert json.loads(body)["type"] == "/problems/too-large"
    assert "100,000 bytes (MAX_BODY_BYTES)" in json.loads(body)["detail"]


def test_a_body_without_length_is_measured_as_it_comes(running: Running) -> None:
    status, _, body = running.ask("POST", "/tasks", iter([b"x" * 50_000] * 100))
    assert status == 413
    assert json.loads(body)["type"] == "/problems/too-large"
    status, _, _ = running.ask("POST", "/tasks", iter([NEW[:5], NEW[5:]]))
    assert status == 202


def test_a_caller_who_asks_first_is_spared_the_sending(running: Running) -> None:
    raw = running.say(HEAD + b"Content-Length: 20000000\r\nExpect: 100-continue\r\n\r\n")
    assert status_of(raw) == 413
    with running.connect() as connection:
        connection.sendall(HEAD + f"Content-Length: {len(NEW)}\r\nExpect: 100-continue\r\n\r\n".encode())
        assert status_of(connection.recv(100)) == 100
        connection.sendall(NEW)
        assert status_of(connection.recv(4096)) == 202


def test_a_caller_who_asks_first_and_has_no_body_is_answered_at_once(running: Running) -> None:
    for length in (b"", b"Content-Length: 0\r\n"):
        raw = running.say(
            b"GET /health/live HTTP/1.1\r\nExpect: 100-continue\r\n" + length + b"Connection: close\r\n\r\n"
        )
        assert status_of(raw) == 200


def test_a_thousand_requests_sent_at_once_are_answered_in_order(running: Running) -> None:
    one = HEAD + f"Content-Length: {len(NEW)}\r\n\r\n".encode() + NEW
    last = one.replace(b"Host: localhost", b"Host: localhost\r\nConnection: close")
    answers: list[bytes] = []
    with running.connect() as connection:
        reader = threading.Thread(target=lambda: answers.extend(iter(lambda: connection.recv(1 << 20), b"")))
        reader.start()
        connection.sendall(one * 999 + last)
        reader.join(60)
    assert b"".join(answers).count(b"HTTP/1.1 202") == 1000


def test_callers_that_break_off_do_no_harm(running: Running) -> None:
    for _ in range(50):
        with running.connect() as connection:
            connection.sendall(HEAD + b'Content-Length: 100\r\n\r\n{"type"')
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    half = running.connect()
    half.sendall(HEAD + f"Content-Length: {len(NEW)}\r\n\r\n".encode() + NEW)
    half.shutdown(socket.SHUT_WR)
    assert status_of(half.recv(4096)) == 202
    half.close()
    assert running.ask("POST", "/tasks", NEW)[0] == 202


@pytest.mark.parametrize("begin", [b"", b"1;", b"0\r\na: "], ids=["body", "size", "trailer"])
def test_chunked_bodies_count_towards_the_memory_bound(begin: bytes) -> None:
    server = idle_server()
    parser = intake.Parser(server.adj)
    parser.received(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + begin)
    given = 0
    while not parser.completed:
        given += parser.received(b"1\r\nx\r\n" if not begin else b"x" * 100)
        assert given < 2000
    assert parser.error is not None
    assert parser.error.code == 413
    server.close()


def test_connections_that_ask_for_nothing_for_a_second_make_place_when_there_are_nearly_as_many_as_may_be() -> None:
    server = idle_server()
    server.adj.connection_limit = 30
    with ExitStack() as opened:

        def connect(said: bytes = b"") -> socket.socket:
            caller = opened.enter_context(closing(socket.create_connection(server.socket.getsockname(), timeout=30)))
            caller.sendall(said)
            before = len(server.active_channels)
            wait_until(lambda: turned(server) and len(server.active_channels) > before, "it is there")
            return caller

        half_here = connect(HEAD)
        wait_until(lambda: arriving(server), "the server reads it")
        idle = [connect() for _ in range(26)]
        for channel in server.active_channels.values():
            channel.last_activity -= 2
        server.maintenance(time.monotonic())
        assert len(server.active_channels) == 27, "there is place"
        connect()
        server.maintenance(time.monotonic())
        wait_until(lambda: turned(server) and len(server.active_channels) == 2, "they make place")
        assert idle[0].recv(1) == b""
        assert not readable(half_here)
    server.close()


@pytest.mark.parametrize("kind", [Server, DashboardServer], ids=["gateway", "dashboard"])
@pytest.mark.parametrize("said", [HEAD, HEAD + b"Content-Length: 900\r\n\r\n{", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_who_sends_half_a_request_or_reads_nothing_makes_place_for_others(
    kind: type[intake.Server], said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("receive_seconds", "idle_seconds"):
        monkeypatch.setattr(kind, name, 3600)
    monkeypatch.setattr(intake, "UNREAD_SECONDS", 3600)
    monkeypatch.setattr(kind, "memory", 1 << 30)
    server = idle_server(kind=kind)
    server.adj.connection_limit = 42  # with the listener and the trigger
    with ExitStack() as opened:
        with monkeypatch.context() as patch:
            patch.setattr(server, "maintenance", lambda now: None)
            slow = [opened.enter_context(closing(asking(server, said))) for _ in range(40)]
            wait_until(lambda: turned(server) and waiting(server) == 40, "all are there", 20)
        for channel in server.active_channels.values():
            channel.last_activity -= 2
        server.maintenance(time.monotonic() + 2)
        other = opened.enter_context(closing(asking(server)))
        wait_until(lambda: turned(server) and readable(other), "another one is answered", 20)
        few = [opened.enter_context(closing(asking(server, HEAD))) for _ in range(5)]
        wait_until(lambda: turned(server) and waiting(server) == 6, "they are there", 20)
        server.maintenance(time.monotonic() + 60)
        assert not any(map(readable, few)), "there is place for them"
        assert any(map(readable, slow))
    server.close()


def waiting(server: intake.Server) -> int:
    """How many connections have sent half a request or read nothing of a response."""
    return sum(each.request is not None or bool(each.total_outbufs_len) for each in server.active_channels.values())


ANSWER = b"x" * 8_000_000
ALONE = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def asking(server: intake.Server, said: bytes = ALONE) -> socket.socket:
    """A caller who asks and reads nothing yet."""
    caller = socket.socket()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    caller.connect(server.socket.getsockname())
    caller.settimeout(30)
    caller.sendall(said)
    return caller


def length_of(caller: socket.socket) -> int:
    """How much of the answer comes until the connection ends, however it does."""
    length = 0
    with suppress(ConnectionResetError):
        while data := caller.recv(1 << 20):
            length += len(data)
    return length


@pytest.mark.parametrize("kind", [Server, DashboardServer], ids=["gateway", "dashboard"])
def test_unread_responses_share_a_memory_bound(kind: type[intake.Server], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "memory", 9_000_000)
    served: list[str] = []
    server = idle_server(kind=kind, served=served)
    with ExitStack() as opened, ThreadPoolExecutor() as pool:
        callers = [opened.enter_context(closing(asking(server))) for _ in range(3)]
        wait_until(lambda: turned(server) and len(served) == 3, "all have been answered")
        wait_until(lambda: turned(server) and len(server.active_channels) == 1, "two are cut off")
        lengths = pool.map(length_of, callers)
        wait_until(lambda: turned(server) and not server.active_channels, "the third has all of it")
        assert sum(length > len(ANSWER) for length in lengths) == 1
    server.close()


def test_a_client_that_reads_nothing_of_its_response_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    server = idle_server()
    monkeypatch.setattr(server, "maintenance", lambda now: None)  # which asks too, by the clock, when a turn takes long
    with closing(asking(server)) as caller:
        wait_until(
            lambda: turned(server) and any(each.total_outbufs_len for each in server.active_channels.values()),
            "it is answered",
        )
        [channel] = server.active_channels.values()
        assert not late(channel)

        def silent() -> bool:
            channel.last_activity -= 21
            return late(channel)

        wait_until(silent, "it is late")  # the thread that answers may note the time meanwhile
        before = channel.total_outbufs_len
        wait_until(
            lambda: len(caller.recv(100_000)) > 0 and turned(server) and channel.total_outbufs_len < before,
            "some of it is taken",
        )
        # The thread that answers may be sending, too: it notes the time after the bytes.
        wait_until(lambda: not late(channel), "it is not late any more")
        assert channel.total_outbufs_len > 0
    server.close()


@pytest.mark.parametrize("kind", [Server, DashboardServer], ids=["gateway", "dashboard"])
def test_a_connection_keeps_no_memory_of_a_response_that_was_read(kind: type[intake.Server]) -> None:
    server = idle_server(kind=kind)
    with closing(socket.create_connection(server.socket.getsockname(), timeout=30)) as caller:
        caller.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        wait_until(lambda: turned(server) and readable(caller), "it is answered")
        [channel] = server.active_channels.values()
        wait_until(lambda: len(caller.recv(1 << 20)) > 0 and turned(server) and not channel.busy, "all of it is taken")
        assert [each.buf for each in channel.outbufs] == [None]
    server.close()


def late(channel: intake.Channel) -> bool:
    return channel.late(time.monotonic(), 60)


@pytest.mark.parametrize("kind", [Server, DashboardServer], ids=["gateway", "dashboard"])
def test_unfinished_bodies_share_a_memory_bound(kind: type[intake.Server], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "memory", 300_000)
    server = idle_server(100_000, kind)
    begin = HEAD + b"Content-Length: 99999\r\n\r\n"
    with ExitStack() as opened:

        def send(size: int) -> socket.socket:
            caller = opened.enter_context(closing(socket.create_connection(server.socket.getsockname(), timeout=30)))
            caller.sendall(begin + b"x" * size)
            return caller

        senders = [send(size) for size in (10_000, 90_000, 95_000, 90_000)]
        wait_until(lambda: turned(server) and held(server) > 280_000, "the server has them")
        senders.append(send(90_000))
        wait_until(lambda: turned(server) and readable(senders[2]), "the largest is closed")
        assert not any(map(readable, [senders[0], senders[1], senders[3]]))
        wait_until(lambda: turned(server) and held(server) > 270_000, "the server has the others")
        assert held(server) <= 300_000
    wait_until(lambda: turned(server) and not server.active_channels, "nothing is kept of who has gone")
    server.close()


def held(server: intake.Server) -> int:
    return sum(each.memory for each in server.active_channels.values())


def turned(server: intake.Server) -> bool:
    server.turn(0.01)
    return True


def readable(caller: socket.socket) -> bool:
    return bool(select.select([caller], [], [], 0)[0])


# --- stopping ---


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_is_finished_and_then_all_processes_are_gone(
    mortal: Running, redis_client: Redis, how: signal.Signals
) -> None:
    task_id = json.loads(mortal.ask("POST", "/tasks", NEW)[2])["task_id"]
    pids = [mortal.process.pid, *mortal.workers]
    answers: list[Answer] = []
    poll = threading.Thread(target=lambda: answers.append(mortal.ask("GET", f"/tasks/{task_id}/result?wait=30")))
    poll.start()
    wait_until(lambda: redis_client.info("clients")["blocked_clients"], "the poll waits")
    with mortal.connect() as connection:
        connection.sendall(HEAD + f"Expect: 100-continue\r\nContent-Length: {len(NEW)}\r\n\r\n".encode())
        assert b"100 Continue" in connection.recv(4096)
        connection.sendall(NEW[:5])
        mortal.process.send_signal(how)
        wait_until(lambda: refuses(mortal), "nobody is let in any more")
        connection.sendall(NEW[5:])
        raw = connection.recv(4096)
    assert status_of(raw) == 202
    assert b"Connection: close" in raw
    poll.join()
    assert answers[0][0] == 202
    assert mortal.process.wait(25) == 0, "it does not wait for the end of the poll"
    assert not any(alive(pid) for pid in pids)


def test_a_stopping_gateway_serves_on_for_its_delay_and_ends_each_connection_with_an_answer(
    system: System, redis_client: Redis
) -> None:
    TaskTypes(redis_client).publish([TaskType(name="process", schema={})])
    gateway = start(system, SHUTDOWN_DELAY="20")
    kept = [http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60) for _ in range(8)]
    assert not any(map(closes, kept))
    gateway.process.send_signal(signal.SIGTERM)
    new = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    wait_until(lambda: closes(new), "a new connection is served, and ended")
    for each in kept:
        wait_until(partial(closes, each), "one that was kept is answered, and ended")
    assert not refuses(gateway), "there is time left"
    assert gateway.process.wait(90) == 0


def closes(connection: http.client.HTTPConnection) -> bool:
    """Whether an answer is the last on its connection."""
    connection.request("GET", "/health/live")
    answer = connection.getresponse()
    assert answer.status == 200
    answer.read()
    return answer.headers.get("Connection") == "close"


def test_nothing_outlives_the_first_process(mortal: Running) -> None:
    workers = mortal.workers
    folder = counts_of(workers)
    assert folder.exists()
    mortal.process.kill()
    mortal.process.wait()
    wait_until(lambda: not any(alive(pid) for pid in workers), "they have ended")
    assert not folder.exists()


def counts_of(workers: list[int]) -> Path:
    """The folder that the processes keep their counts in."""
    mapped = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in workers)
    found = re.search(r"/\S*/gateway-metrics-[^/]+", mapped)
    assert found
    return Path(found[0])
