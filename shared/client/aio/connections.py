"""Connections to a gateway for asyncio; the standard library's http.client writes and reads the heads of messages."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from http.client import HTTPConnection, HTTPException, IncompleteRead, RemoteDisconnected
from io import BytesIO
from typing import Any, Self

from shared.client.connections import CONNECT, IDLE
from shared.client.response import Answer

CONNECTIONS = 100
"""Maximum connections for requests; more requests wait for their turn. A stream has a connection beside these."""
_LONGEST_LINE = 1 << 20
_MOST_HEADERS = 100
_PIECE = 1 << 16
_Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]


class Connections:
    """Connections to one address, for one event loop at a time: another loop gets connections of its own."""

    def __init__(self, host: str, port: int | None, tls: ssl.SSLContext | None) -> None:
        self.host = host
        self.port = port or (443 if tls else 80)
        self.tls = tls
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kept: deque[tuple[float, Connection]] = deque()

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
        self._begin()
        kept, free = self._kept, self._free
        try:
            async with asyncio.timeout(timeout):
                await free.acquire()
        except TimeoutError:
            raise TimeoutError(f"all {CONNECTIONS} connections of this client are in use") from None
        try:
            # The gateway may just have closed a reused connection, and then it is unknown what it has read.
            connection = (_take(kept, timeout) if reuse else None) or await self.connect(timeout)
            try:
                response = await connection.request(method, target, content, headers)
                answer = Answer(response.status, response.headers, await response.read())
            except BaseException:  # also of a cancelled call: its response may still arrive
                connection.close()
                raise
            if response.will_close:
                connection.close()
            else:
                _keep(kept, connection)
        finally:
            free.release()
        return answer

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
        reader = asyncio.StreamReader(_LONGEST_LINE, loop)
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
        return Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop), self, timeout)

    async def close(self) -> None:
        """Closes all idle connections."""
        self._begin()
        while self._kept:
            self._kept.pop()[1].close()
        await asyncio.sleep(0)  # the loop closes them in its next turn

    def _begin(self) -> None:
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._loop = loop
            self._kept = deque()
            self._free = asyncio.Semaphore(CONNECTIONS)

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


def _take(kept: deque[tuple[float, Connection]], timeout: float) -> Connection | None:
    while kept:
        since, connection = kept.pop()
        if time.monotonic() - since < IDLE and connection.usable:
            connection.timeout = timeout
            return connection
        connection.close()
    return None


def _keep(kept: deque[tuple[float, Connection]], connection: Connection) -> None:
    now = time.monotonic()
    while kept and now - kept[0][0] >= IDLE:
        kept.popleft()[1].close()
    kept.append((now, connection))


class Connection:
    """A connection; `timeout` is the longest wait for the other side, in seconds."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: Connections, timeout: float
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.address = address
        self.timeout = timeout

    @property
    def usable(self) -> bool:
        """Returns whether the other side has not closed it."""
        return not (self.reader.at_eof() or self.reader.exception() or self.writer.is_closing())

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
        return HTTPResponse(self, _Head(await self._head(), method))

    async def _head(self) -> bytes:
        lines: list[bytes] = []
        # What is not HTTP may have no end.
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
            return await self.reader.read(most)

    async def readline(self) -> bytes:
        """Returns a line, or at the end the rest. Raises HTTPException for one that is too long."""
        try:
            async with asyncio.timeout(self.timeout):
                return await self.reader.readline()
        except ValueError as error:
            raise HTTPException("a line of the response is too long") from error

    def close(self) -> None:
        self.writer.transport.abort()


class _Message(HTTPConnection):
    """Collects what http.client would send, after its checks of method, target and headers."""

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
        """Returns a line of at most `most` bytes; at the end of the body what is left, or nothing."""
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
