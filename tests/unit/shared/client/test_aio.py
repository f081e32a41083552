"""The client for asyncio: what it makes of the bytes of a server, and that it leaves the loop to others."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from http.client import HTTPMessage
from typing import TypeVar

import pytest
import trustme

from firmq.shared.client import AsyncClient, Client, Unreachable
from firmq.shared.client.aio import connections as connecting
from firmq.shared.client.aio.concurrency import each_of
from firmq.shared.client.aio.connections import Connections
from firmq.shared.client.connections import Connections as BlockingConnections
from firmq.shared.client.response import Answer

T = TypeVar("T")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
SIZED = HEAD + b"Content-Length: 5\r\n\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


class Scripted:
    """A server that sends the same pieces for each request, and may close the connection then."""

    def __init__(self, *pieces: bytes, close: bool = False) -> None:
        self.pieces = pieces
        self.close = close
        self.server_tls: ssl.SSLContext | None = None
        self.client_tls: ssl.SSLContext | None = None
        self.connections = 0
        self.open = 0
        self.sockets: list[socket.socket] = []

    def encrypt(self, *, trusted: bool = True) -> None:
        ca = trustme.CA()
        self.server_tls, self.client_tls = (
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
            ssl.create_default_context(),
        )
        ca.issue_cert("127.0.0.1").configure_cert(self.server_tls)
        if trusted:
            ca.configure_trust(self.client_tls)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.sockets.append(writer.get_extra_info("socket"))
        with suppress(OSError, asyncio.IncompleteReadError):
            while await reader.readline():
                await reader.readuntil(b"\r\n\r\n")
                for piece in self.pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.01)
                if self.close:
                    break
        self.open -= 1
        writer.close()

    def ask(self, times: int = 1, *, reuse: bool = True, pause: float = 0.0, seconds: float = 60.0) -> list[Answer]:
        """The answers to requests, one after the other."""

        async def asking(there: Connections) -> list[Answer]:
            answers = []
            for _ in range(times):
                answers.append(await _get(there, reuse=reuse, seconds=seconds))
                await asyncio.sleep(pause)
            return answers

        return self.run(asking)

    def run(self, scenario: Callable[[Connections], Awaitable[T]]) -> T:
        """What a scenario returns, beside the server and with connections to it."""

        async def running() -> T:
            server = await asyncio.start_server(self.serve, "127.0.0.1", ssl=self.server_tls)
            there = Connections("127.0.0.1", server.sockets[0].getsockname()[1], self.client_tls)
            try:
                return await scenario(there)
            finally:
                await there.close()
                server.close()

        return asyncio.run(running())


async def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.005)


async def _get(there: Connections, *, reuse: bool = True, seconds: float = 60.0) -> Answer:
    return await there.request("GET", "/", None, {}, seconds, reuse=reuse)


@pytest.mark.parametrize(
    ("pieces", "close"),
    [
        ((SIZED + b"hello",), False),
        ((SIZED[:20], SIZED[20:], b"he", b"llo"), False),
        ((CHUNKED, b"3\r\nhel\r\n2;name=value\r\nlo\r\n0\r\n\r\n"), False),
        ((CHUNKED + b"5\r\nhe", b"llo\r\n0\r\nTrailer: 1\r\n\r\n"), False),
        ((HEAD + b"\r\nhe", b"llo"), True),
        ((HEAD + b"Connection: close\r\n\r\nhello",), True),
        ((b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",), True),
    ],
)
def test_a_body_is_read_however_it_is_delimited_and_its_connection_used_again(
    pieces: tuple[bytes, ...], close: bool
) -> None:
    server = Scripted(*pieces, close=close)
    assert [(each.status, each.body) for each in server.ask(3)] == [(200, b"hello")] * 3
    assert server.connections == (3 if close else 1)


def test_an_answer_without_a_body_ends_with_its_head() -> None:
    server = Scripted(b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n")
    assert [(each.status, each.body, each.headers["x"]) for each in server.ask(2)] == [(204, b"", "y")] * 2
    assert server.connections == 1


@pytest.mark.parametrize(
    "interim", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 2]
)
def test_responses_before_the_actual_one_are_skipped_in_both_clients(interim: bytes) -> None:
    server = Scripted(interim, interim + SIZED + b"hello")

    async def scenario(there: Connections) -> None:
        threads = BlockingConnections(there.host, there.port, None)
        for _ in range(2):
            assert (await _get(there)).body == b"hello"
            answer = await asyncio.to_thread(threads.request, "GET", "/", None, {}, 60.0, reuse=True)
            assert answer.body == b"hello"
        threads.close()

    server.run(scenario)
    assert server.connections == 2


def test_an_ipv6_address_without_a_port_has_that_of_the_scheme() -> None:
    for url, port in (("http://[::1]", 80), ("https://[::1]", 443)):
        for client in (Client(url), AsyncClient(url)):
            assert (client.transport.connections.host, client.transport.connections.port) == ("::1", port)


def test_what_cannot_be_repeated_has_a_connection_of_its_own() -> None:
    server = Scripted(SIZED + b"hello")

    async def scenario(there: Connections) -> None:
        for _ in range(3):
            await _get(there, reuse=False)
        await until(lambda: server.open == 0, "the connections are closed")

    server.run(scenario)
    assert server.connections == 3


def test_idle_connections_and_those_in_use_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "CONNECTIONS", 3)
    server = Scripted(SIZED + b"hello")

    async def scenario(there: Connections) -> None:
        await asyncio.gather(*(_get(there) for _ in range(3)))
        assert server.open == 3
        server.pieces = ()  # now requests get no answer
        calls = [asyncio.create_task(_get(there, reuse=False)) for _ in range(2)]
        await until(lambda: server.connections == 5, "two more are open")
        await until(lambda: server.open == 3, "two idle ones are closed")
        assert not any(each.done() for each in calls)
        for each in calls:
            each.cancel()

    server.run(scenario)


def test_a_connection_whose_request_outlives_the_client_is_closed() -> None:
    server = Scripted(SIZED, b"hello")

    async def scenario(there: Connections) -> None:
        call = asyncio.create_task(_get(there))
        await until(lambda: server.connections == 1, "the request is on its way")
        await there.close()
        assert (await call).body == b"hello"
        await until(lambda: server.open == 0, "its connection is closed")

    server.run(scenario)


def test_the_connections_of_a_loop_that_has_ended_are_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = Connections("127.0.0.1", listener.getsockname()[1], None)

        def answer() -> None:
            while True:
                server, _ = listener.accept()
                with server:
                    server.recv(1000)
                    server.sendall(SIZED + b"hello")
                    ended.append(server.recv(1))
                if len(ended) == 2:
                    return

        ended: list[bytes] = []
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        # The server serves one connection at a time: the second is answered when the first is closed.
        for _ in range(2):
            assert asyncio.run(_get(there)).body == b"hello"
        assert ended == [b""]
        asyncio.run(there.close())
        thread.join(60)
        assert ended == [b"", b""]


STRAY = SIZED + b"stray"


@pytest.mark.parametrize("pieces", [(SIZED + b"hello" + STRAY,), (SIZED + b"hello", STRAY)], ids=["at once", "later"])
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_what_was_not_asked_for_is_not_the_answer_to_the_next_request(
    pieces: tuple[bytes, ...], encrypted: bool
) -> None:
    server = Scripted(*pieces)
    if encrypted:
        server.encrypt()
    assert [each.body for each in server.ask(3, pause=0.05)] == [b"hello"] * 3
    assert server.connections == 3


def test_what_was_not_asked_for_is_noticed_before_the_loop_has_read_it() -> None:
    server = Scripted(SIZED + b"hello")

    async def scenario(there: Connections) -> None:
        assert (await _get(there)).body == b"hello"
        os.write(server.sockets[0].fileno(), STRAY)
        assert (await _get(there)).body == b"hello"

    server.run(scenario)
    assert server.connections == 2


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_the_client_for_threads_takes_nothing_that_was_not_asked_for_either(encrypted: bool) -> None:
    server = Scripted(SIZED + b"hello")
    if encrypted:
        server.encrypt()

    async def scenario(there: Connections) -> None:
        threads = BlockingConnections(there.host, there.port, there.tls)

        async def get() -> bytes:
            answer = await asyncio.to_thread(threads.request, "GET", "/", None, {}, 1.0, reuse=True)
            await asyncio.sleep(0.05)
            return answer.body

        assert await get() == b"hello"
        server.pieces += (STRAY,)
        assert await get() == b"hello"
        assert server.connections == 1
        assert await get() == b"hello"
        assert server.connections == 2
        threads.close()

    server.run(scenario)


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (HEAD,),
        (SIZED + b"hell",),
        (CHUNKED + b"5\r\nhell",),
        (CHUNKED + b"five\r\nhello\r\n0\r\n\r\n",),
        (b"SSH-2.0-OpenSSH_9.6\r\n",),
        (HEAD + b"X: " + b"y" * (2 << 20) + b"\r\n\r\n",),
        (HEAD + b"X: y\r\n" * 1000 + b"\r\n",),
    ],
    ids=["nothing", "half a head", "half a body", "half a chunk", "no size", "no HTTP", "long line", "many headers"],
)
def test_what_is_no_whole_answer_is_a_lost_one(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(Connections.LOST):
        Scripted(*pieces, close=True).ask()


def test_silence_is_a_lost_answer() -> None:
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        Scripted(SIZED).ask(seconds=1.0)
    assert time.monotonic() - begun > 0.9


def test_a_connection_that_the_server_has_closed_is_not_used_again() -> None:
    server = Scripted(SIZED + b"hello", close=True)
    assert len(server.ask(2, pause=0.1)) == 2
    assert server.connections == 2


def test_an_encrypted_connection_is_used_again_if_its_certificate_is_trusted() -> None:
    server = Scripted(SIZED + b"hello")
    server.encrypt(trusted=False)
    with pytest.raises(ssl.SSLCertVerificationError):
        server.ask()
    server.encrypt()
    assert [each.body for each in server.ask(2)] == [b"hello", b"hello"]
    assert server.connections == 1


def test_a_cancel_at_the_end_of_a_handshake_leaves_the_descriptor_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Scripted(SIZED + b"hello")
    server.encrypt()
    wake = SSLProtocol._wakeup_waiter

    async def scenario(there: Connections) -> None:
        calls = [asyncio.create_task(_get(there))]

        def woken(self: SSLProtocol, *error: BaseException) -> None:
            wake(self, *error)
            if calls and not self._server_side:
                calls.pop().cancel()

        monkeypatch.setattr(SSLProtocol, "_wakeup_waiter", woken)
        with pytest.raises(asyncio.CancelledError):
            await calls[0]
        assert [(await _get(there)).body, (await _get(there, reuse=False)).body] == [b"hello"] * 2

    server.run(scenario)


def test_a_socket_that_no_transport_has_taken_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[socket.socket] = []
    connect = Connections._socket

    async def noted(self: Connections, seconds: float) -> socket.socket:
        opened.append(await connect(self, seconds))
        return opened[0]

    async def scenario(there: Connections) -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", None)
        with pytest.raises(TypeError):
            await there.connect(1.0)
        assert opened[0].fileno() == -1

    monkeypatch.setattr(Connections, "_socket", noted)
    Scripted().run(scenario)


def test_a_name_is_looked_up_within_the_time_limit_and_an_address_without_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = threading.Event()

    async def scenario(there: Connections) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, done.wait, 200)
        try:
            async with asyncio.timeout(60):
                assert (await _get(there)).body == b"hello"
                there.host = "localhost"
                monkeypatch.setattr(connecting, "CONNECT", 0.3)
                with pytest.raises(TimeoutError, match=r"looking up localhost took more than 0\.3 s"):
                    await _get(there, reuse=False)
        finally:
            done.set()
            await busy

    Scripted(SIZED + b"hello").run(scenario)


def test_calls_that_wait_for_results_leave_connections_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "LONG_POLLS", 2)
    monkeypatch.setattr(connecting, "POLLS", 3)
    polls: list[int] = []
    long_polls: list[str] = []
    naps: list[float] = []
    running = 0

    async def request(_: Connections, method: str, target: str, *__: object, reuse: bool) -> Answer:
        nonlocal running
        if "wait=0.0" not in target:
            long_polls.append(target)
            await asyncio.sleep(3600)
        running += 1
        polls.append(running)
        await asyncio.sleep(0.001)
        running -= 1
        return Answer(202, HTTPMessage(), b'{"status":"pending"}')

    async def nap(seconds: float) -> None:
        naps.append(seconds)
        await asyncio.sleep(0)

    async def scenario() -> None:
        client = AsyncClient("http://127.0.0.1:1", sleep=nap)
        calls = [asyncio.create_task(client.wait("x")) for _ in range(20)]
        await until(lambda: len(naps) >= 180, "they ask again and again")
        for each in calls:
            each.cancel()

    monkeypatch.setattr(Connections, "request", request)
    asyncio.run(scenario())
    assert (len(long_polls), max(polls)) == (2, 3)
    assert 0.75 <= min(naps) < 1.25
    assert all(3.75 <= each <= 6.25 for each in naps[-18:]), "pauses grow"
    assert len(set(naps[:18])) == 18, "they do not ask again at the same time"


def test_a_call_that_gets_no_turn_to_ask_for_a_result_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "LONG_POLLS", 1)
    monkeypatch.setattr(connecting, "POLLS", 1)

    async def scenario() -> None:
        client = AsyncClient("http://127.0.0.1:1", timeout=0.1)
        turns = client.transport.connections.long_poll
        async with turns(5.0, 1.0) as first, turns(5.0, 1.0) as second:
            assert (first, second) == (5.0, 0.0)
            with pytest.raises(Unreachable, match=r"^too many calls wait .* use batches\.watch$"):
                await client.wait("x", 0)

    asyncio.run(scenario())


def test_any_number_of_threads_wait_at_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(60)
    targets: list[str] = []

    def request(_: BlockingConnections, method: str, target: str, *__: object, reuse: bool) -> Answer:
        targets.append(target)
        together.wait(60)
        return Answer(200, HTTPMessage(), b'{"task_id":"x","status":"completed","result":1}')

    monkeypatch.setattr(BlockingConnections, "request", request)
    client = Client("http://127.0.0.1:1")
    with ThreadPoolExecutor(60) as pool:
        assert list(pool.map(client.result, ["x"] * 60)) == [1] * 60
    assert {each.partition("?")[2] for each in targets} == {"wait=30.0"}


def test_a_long_poll_that_is_cut_off_late_uses_up_neither_patience_nor_the_time_of_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    waits: list[float] = []

    async def request(_: Connections, method: str, target: str, *__: object, reuse: bool) -> Answer:
        nonlocal now
        waits.append(float(target.rpartition("=")[2]))
        if len(waits) == 1:
            now += 31
            raise ConnectionResetError("cut off")
        status = "pending" if len(waits) == 2 else "completed"
        return Answer(
            200 + 2 * (status == "pending"), HTTPMessage(), b'{"task_id":"x","status":"%b"}' % status.encode()
        )

    async def nap(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(Connections, "request", request)
    client = AsyncClient("http://127.0.0.1:1", sleep=nap, clock=lambda: now)
    assert asyncio.run(client.wait("x", 40)).status == "completed"
    assert waits[:2] == [30, 0]
    assert 8 < waits[2] < 9


class _Stream:
    """A stream of events that goes silent after its lines."""

    status = 200
    headers = HTTPMessage()
    headers["Content-Type"] = "text/event-stream"

    def __init__(self, *lines: bytes) -> None:
        self.lines = iter(lines)

    async def readline(self, most: int) -> bytes:
        if line := next(self.lines, b""):
            return line
        raise TimeoutError


def test_a_stream_that_goes_silent_is_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    task = b'data: {"task_id":"x","type":"t","queue":"normal","status":"%b"}\n'
    streams = iter([_Stream(task % b"running", b"\n"), _Stream(b"event: end\n", task % b"completed", b"\n"), _Stream()])

    @asynccontextmanager
    async def stream(_: Connections, target: str, headers: object, silence: float) -> AsyncIterator[_Stream]:
        nonlocal now
        try:
            yield next(streams)
        finally:
            now += silence

    async def nap(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def seen() -> list[str]:
        client = AsyncClient("http://127.0.0.1:1", sleep=nap, clock=lambda: now)
        return [each.status async for each in client.watch("x")]

    monkeypatch.setattr(Connections, "stream", stream)
    assert asyncio.run(seen()) == ["running", "completed"]
    with pytest.raises(Unreachable, match="timed out"):
        asyncio.run(seen())  # a stream that says nothing at all


def test_other_tasks_go_on_while_a_plain_iterable_is_read() -> None:
    def slowly() -> Iterator[int]:
        for n in range(5):
            time.sleep(0.01)  # as a query of a database
            yield n

    async def scenario() -> int:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        assert [n async for n in each_of(slowly())] == [0, 1, 2, 3, 4]
        other.cancel()
        return turns

    assert asyncio.run(scenario()) >= 5


def test_an_asynchronous_iterable_is_read_too() -> None:
    async def items() -> AsyncIterator[int]:
        for n in range(3):
            await asyncio.sleep(0)
            yield n

    async def scenario() -> list[int]:
        return [n async for n in each_of(items())]

    assert asyncio.run(scenario()) == [0, 1, 2]
