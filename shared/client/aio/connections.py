"""Connections to a gateway for asyncio; the standard library's http.client writes and reads the heads of messages."""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from http.client import HTTPConnection, HTTPException, IncompleteRead, RemoteDisconnected
from io import BytesIO
from typing import Any, Self

from firmq.shared.client.connections import CONNECT, IDLE, silent
from firmq.shared.client.response import Answer, NoTurn

CONNECTIONS = 100
"""Maximum connections for requests; more requests wait for their turn. A stream has a connection beside these."""
LONG_POLLS = 50
"""Maximum requests that wait for results at the gateway; each occupies a connection."""
POLLS = 10
"""Maximum requests for results beside these, so that connections stay free for others."""
_LONGEST_LINE = 1 << 20
_MOST_HEADERS = 100
_PIECE = 1 << 16
_INTERIM = re.compile(rb"HTTP/\S+ +1(?!01)\d\d\b")
"""The status line of a response before the actual one, such as 103 Early Hints."""
_Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]


class Connections:
    """Connections to one address, for one event loop at a time: another loop gets connections of its own."""

    LOST = (OSError, HTTPException)
    """Exceptions for a lost response."""

    def __init__(self, host: str, port: int | None, tls: ssl.SSLContext | None) -> None:
        self.host = host
        self.port = port or (443 if tls else 80)
        self.tls = tls
        self._pool: _Pool | None = None

    async def request(
        self,
        method: str,
        target: str,
        content: bytes | None,
        headers: Mapping[str, str],
        timeout: float,
        *,
        reuse: bool,
    ) -> Answer:
        """Sends a request and returns its response; with `reuse`, on an idle connection if there is one."""
        pool = self._begin()
        async with pool.place(timeout):
            # The gateway may just have closed a reused connection, and then it is unknown how much it has read.
            connection = pool.take(timeout) if reuse else None
            if connection is None:
                pool.make_room()
                connection = await self.connect(timeout)
            try:
                response = await connection.request(method, target, content, headers)
                answer = Answer(response.status, response.headers, await response.read())
            except BaseException:  # also of a cancelled call: its response may still arrive
                connection.close()
                raise
            if reuse and not response.will_close:
                pool.keep(connection)
            else:
                connection.close()
        return answer

    @asynccontextmanager
    async def long_poll(self, seconds: float, timeout: float) -> AsyncIterator[float]:
        """Waits for the turn of a request for a result, and yields the seconds for which it may wait at the gateway.

        They are 0 while LONG_POLLS others wait there. Of those with 0, POLLS have a turn at a time; more wait for one,
        for `seconds` and `timeout`. Raises NoTurn.
        """
        pool = self._begin()
        waits = not pool.long_polls.locked()
        places = pool.long_polls if waits else pool.polls
        advice = "too many calls wait for results at once: send the tasks as a batch, and use batches.watch"
        await _acquire(places, seconds + timeout, advice)
        try:
            yield seconds if waits else 0.0
        finally:
            places.release()

    @asynccontextmanager
    async def stream(self, target: str, headers: Mapping[str, str], timeout: float) -> AsyncIterator[HTTPResponse]:
        """Requests a stream on a connection of its own; `timeout` is the longest silence, in seconds."""
        connection = await self.connect(timeout)
        try:
            yield await connection.request("GET", target, None, headers)
        finally:
            connection.close()

    async def connect(self, timeout: float) -> Connection:
        """Opens a connection; `timeout` is the time limit of its responses, in seconds."""
        soon = min(timeout, CONNECT)
        server = await self._socket(soon)
        loop = asyncio.get_running_loop()
        reader = _Reader(_LONGEST_LINE, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        owned = False

        def begin() -> asyncio.StreamReaderProtocol:
            nonlocal owned
            owned = True
            return protocol

        try:
            async with asyncio.timeout(soon):
                name = self.host if self.tls else None
                transport, _ = await loop.create_connection(begin, sock=server, ssl=self.tls, server_hostname=name)
        except BaseException:
            if owned:  # by a transport, which may still be registered in the loop and closes it at its end
                with suppress(OSError):
                    server.shutdown(socket.SHUT_RDWR)
            else:
                server.close()
            raise
        return Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop), server, self, timeout)

    async def close(self) -> None:
        """Closes all idle connections, and those in use when their request ends."""
        self._begin().close()
        self._pool = None
        await asyncio.sleep(0)  # the loop closes them in its next turn

    def _begin(self) -> _Pool:
        """Returns the connections of the running loop; closes another loop's."""
        loop = asyncio.get_running_loop()
        if self._pool is None or self._pool.loop is not loop:
            if self._pool:
                self._pool.leave()
            self._pool = _Pool(loop)
        return self._pool

    async def _socket(self, seconds: float) -> socket.socket:
        """Connects to one address of the host after another, `seconds` for each."""
        loop = asyncio.get_running_loop()
        error: OSError | None = None
        for family, kind, protocol, _, address in await self._addresses(seconds):
            server = socket.socket(family, kind, protocol)
            server.setblocking(False)
            try:
                async with asyncio.timeout(seconds):
                    await loop.sock_connect(server, address)
            except BaseException as failed:
                server.close()
                if not isinstance(failed, OSError):
                    raise
                error = failed
            else:
                return server
        raise error or OSError("the host has no address")

    async def _addresses(self, seconds: float) -> Sequence[_Address]:
        """Returns the addresses of the host. Uses a thread of the loop's pool, for a name alone."""
        with suppress(socket.gaierror):
            return socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.get_running_loop().getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except TimeoutError:
            raise TimeoutError(f"looking up {self.host} took more than {seconds:g} s") from None


async def _acquire(places: asyncio.Semaphore, timeout: float, advice: str) -> None:
    try:
        async with asyncio.timeout(timeout):
            await places.acquire()
    except TimeoutError:
        raise NoTurn(advice) from None


class _Pool:
    """Connections of a loop for requests: those in use and those that are idle are at most CONNECTIONS together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.long_polls = asyncio.Semaphore(LONG_POLLS)
        self.polls = asyncio.Semaphore(POLLS)
        self._free = asyncio.Semaphore(CONNECTIONS)
        self._used = 0
        self._idle: deque[tuple[float, Connection]] = deque()
        self._closed = False

    @asynccontextmanager
    async def place(self, timeout: float) -> AsyncIterator[None]:
        """Waits until a connection may be used, and counts it. Raises NoTurn."""
        advice = f"all {CONNECTIONS} connections of this client are in use: make fewer calls at once"
        await _acquire(self._free, timeout, advice)
        self._used += 1
        try:
            yield
        finally:
            self._used -= 1
            self._free.release()

    def take(self, timeout: float) -> Connection | None:
        """Returns an idle connection, if there is one."""
        while self._idle:
            since, connection = self._idle.pop()
            if time.monotonic() - since < IDLE and connection.usable:
                connection.timeout = timeout
                return connection
            connection.close()
        return None

    def make_room(self) -> None:
        """Closes the oldest idle connection if a new one would be too many."""
        while self._idle and len(self._idle) + self._used > CONNECTIONS:
            self._idle.popleft()[1].close()

    def keep(self, connection: Connection) -> None:
        now = time.monotonic()
        while self._idle and now - self._idle[0][0] >= IDLE:
            self._idle.popleft()[1].close()
        if self._closed or not connection.usable:
            connection.close()
        else:
            self._idle.append((now, connection))

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop()[1].close()

    def leave(self) -> None:
        """Closes the connections from another loop than theirs."""
        try:
            self.loop.call_soon_threadsafe(self.close)
        except RuntimeError:  # their loop is closed, and their transports can do nothing without it
            for _, connection in self._idle:
                connection.socket.close()


class _Reader(asyncio.StreamReader):
    """A reader that knows how many bytes it holds, if their takers subtract them, and whether the end has arrived."""

    unread = 0
    ended = False

    def feed_data(self, data: Any) -> None:
        self.unread += len(data)
        super().feed_data(data)

    def feed_eof(self) -> None:
        self.ended = True
        super().feed_eof()


class Connection:
    """A connection; `timeout` is the longest wait for the other side, in seconds."""

    def __init__(
        self,
        reader: _Reader,
        writer: asyncio.StreamWriter,
        server: socket.socket,
        address: Connections,
        timeout: float,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.socket = server
        self.address = address
        self.timeout = timeout

    @property
    def usable(self) -> bool:
        """Returns whether the other side has neither closed it nor sent unrequested data."""
        reader = self.reader
        if reader.unread or reader.ended or reader.exception() or self.writer.is_closing():
            return False
        return silent(self.socket)

    async def request(
        self, method: str, target: str, content: bytes | None, headers: Mapping[str, str]
    ) -> HTTPResponse:
        """Sends a request and returns its response, of which the head is read."""
        message = _Message(self.address.host, self.address.port)
        if self.address.tls:
            message.default_port = 443
        message.request(method, target, content, dict(headers))
        self.writer.write(b"".join(message.parts))
        async with asyncio.timeout(self.timeout):
            await self.writer.drain()
        while _INTERIM.match(head := await self._head()):
            pass
        return HTTPResponse(self, _Head(head, method))

    async def _head(self) -> bytes:
        lines: list[bytes] = []
        # A response that is not HTTP may have no end.
        while len(lines) <= _MOST_HEADERS + 1 and (not lines or lines[0].startswith(b"HTTP/")):
            line = await self.readline()
            if not line:
                raise RemoteDisconnected("the connection was closed without a response")
            lines.append(line)
            if not line.strip():
                break
        return b"".join(lines)

    async def read(self, most: int) -> bytes:
        async with asyncio.timeout(self.timeout):
            return self._taken(await self.reader.read(most))

    async def readline(self) -> bytes:
        """Returns a line, or at the end the rest. Raises HTTPException for an overlong line."""
        try:
            async with asyncio.timeout(self.timeout):
                return self._taken(await self.reader.readline())
        except ValueError as error:
            raise HTTPException("a line of the response is too long") from error

    def _taken(self, data: bytes) -> bytes:
        self.reader.unread -= len(data)
        return data

    def close(self) -> None:
        self.writer.transport.abort()


class _Message(HTTPConnection):
    """Collects the bytes that http.client would send, after its checks of method, target and headers."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.parts: list[bytes] = []

    def send(self, data: Any) -> None:
        self.parts.append(data)


class _Received(BytesIO):
    """Received bytes in place of a socket."""

    def makefile(self, mode: str) -> Self:
        return self


class _Head(http.client.HTTPResponse):
    """A status line with headers, as http.client understands them."""

    def __init__(self, data: bytes, method: str) -> None:
        super().__init__(_Received(data), method=method)  # type: ignore[arg-type]  # of a socket it uses makefile alone
        self.begin()


class HTTPResponse:
    """A response whose body is read as it arrives."""

    def __init__(self, connection: Connection, head: http.client.HTTPResponse) -> None:
        self.connection = connection
        self.status = head.status
        self.headers = head.headers
        self.will_close = head.will_close
        self._body = self._chunked() if head.chunked else self._plain(head.length)
        self._unread = b""

    async def read(self) -> bytes:
        """Returns the whole body. Raises IncompleteRead when it is cut off."""
        return b"".join([piece async for piece in self._body])

    async def readline(self, most: int) -> bytes:
        """Returns a line of at most `most` bytes; at the end of the body the rest, or nothing."""
        while (end := self._unread.find(b"\n") + 1) == 0 and len(self._unread) < most:
            if not (piece := await anext(self._body, b"")):
                end = len(self._unread)
                break
            self._unread += piece
        end = min(end or most, most)
        line, self._unread = self._unread[:end], self._unread[end:]
        return line

    async def _plain(self, size: int | None) -> AsyncIterator[bytes]:
        """Yields a body of `size` bytes, or one that ends with its connection."""
        while size is None or size > 0:
            piece = await self.connection.read(_PIECE if size is None else min(size, _PIECE))
            if not piece:
                if size is None:
                    return
                raise IncompleteRead(b"", size)
            if size is not None:
                size -= len(piece)
            yield piece

    async def _chunked(self) -> AsyncIterator[bytes]:
        while size := await self._chunk_size():
            async for piece in self._plain(size):
                yield piece
            await self.connection.readline()
        while (await self.connection.readline()).strip():
            pass  # trailers

    async def _chunk_size(self) -> int:
        line = await self.connection.readline()
        try:
            return int(line.partition(b";")[0], 16)
        except ValueError:
            raise IncompleteRead(line) from None
