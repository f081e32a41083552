"""Requests at a fixed rate, whether or not the last ones were quick, and how long each took from its moment on."""

from __future__ import annotations

import asyncio
import math
import time

CONNECTIONS = 16


async def _send(requests: asyncio.Queue[float | None], port: int, request: bytes, times: list[float]) -> None:
    """One connection: takes the next moment, waits for it, sends, reads the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while (moment := await requests.get()) is not None:
            await asyncio.sleep(max(0.0, moment - time.perf_counter()))
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 20"):
                raise SystemExit(f"refused: {head[:200]!r}")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            times.append(time.perf_counter() - moment)
    finally:
        writer.close()


async def _load(port: int, request: bytes, rate: int, seconds: int) -> list[float]:
    times: list[float] = []
    moments: asyncio.Queue[float | None] = asyncio.Queue()
    first = time.perf_counter() + 0.1
    for n in range(rate * seconds):
        moments.put_nowait(first + n / rate)
    for _ in range(CONNECTIONS):
        moments.put_nowait(None)
    await asyncio.gather(*(_send(moments, port, request, times) for _ in range(CONNECTIONS)))
    return times


def post(port: int, path: str, body: str, rate: int, seconds: int) -> tuple[float, float, float]:
    """Median, 99th percentile and longest time of an answer in milliseconds, counted from when it was to be sent."""
    request = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()
    times = sorted(asyncio.run(_load(port, request, rate, seconds)))
    return times[len(times) // 2] * 1000, times[math.ceil(len(times) * 0.99) - 1] * 1000, times[-1] * 1000
