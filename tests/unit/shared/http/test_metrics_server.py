"""The port of metrics and health asks nobody who he is: whoever holds connections to it must not cost much."""

from __future__ import annotations

import errno
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPException
from http.server import ThreadingHTTPServer

import pytest
from prometheus_client import CollectorRegistry

from firmq.shared.http import metrics_server as probes
from firmq.shared.http.metrics_server import CONNECTIONS, Check, MetricsServer
from tests.support.harness import wait_until


@pytest.fixture
def probe() -> Iterator[MetricsServer]:
    running = MetricsServer(
        "127.0.0.1", 0, CollectorRegistry(), live=lambda: Check(True, {}), ready=lambda: Check(True, {})
    )
    running.start()
    yield running
    running.stop()


@pytest.mark.skipif(not socket.has_ipv6, reason="this system has no IPv6")
@pytest.mark.parametrize("host", ["::1", "::"])
def test_an_ipv6_address_is_served(host: str) -> None:
    server = MetricsServer(host, 0, CollectorRegistry(), live=lambda: Check(True, {}), ready=lambda: Check(True, {}))
    server.start()
    with urllib.request.urlopen(f"http://[::1]:{server.port}/health/live", timeout=60) as answer:
        assert answer.status == 200
    server.stop()


def answers(probe: MetricsServer) -> bool:
    with suppress(OSError, HTTPException):
        url = f"http://127.0.0.1:{probe.port}/health/live"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return bool(answer.status == 200)
    return False


def test_head_is_answered_without_a_body(probe: MetricsServer) -> None:
    with socket.create_connection(("127.0.0.1", probe.port), timeout=60) as client:
        client.sendall(b"HEAD /health/live HTTP/1.0\r\n\r\n")
        head, _, body = b"".join(iter(lambda: client.recv(4096), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200")
    assert b"Content-Length: 17" in head
    assert body == b""


def threads() -> int:
    return sum("process_request_thread" in each.name for each in threading.enumerate())


def test_idle_connections_do_not_block_others(probe: MetricsServer) -> None:
    most = 0
    with ExitStack() as held:
        for _ in range(4 * CONNECTIONS):
            one = held.enter_context(socket.create_connection(("127.0.0.1", probe.port), timeout=60))
            with suppress(ConnectionError):
                one.sendall(b"G")
            most = max(most, threads())
        wait_until(lambda: answers(probe), "it answers")
        # One that makes room is gone a moment after its place is.
        assert 0 < max(most, threads()) < 2 * CONNECTIONS
    wait_until(lambda: threads() == 0, "all threads are gone")
    assert answers(probe)


def test_a_trickling_connection_ends_in_time(probe: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "WITHIN", 0.5)
    with socket.create_connection(("127.0.0.1", probe.port), timeout=60) as one:
        one.sendall(b"GET /health/live HTTP/1.0\r\nX: ")
        one.settimeout(0.05)
        for _ in range(600):
            try:
                one.sendall(b"x")
                assert one.recv(100) == b""
                return
            except TimeoutError:
                continue
            except ConnectionError:
                return
    pytest.fail("it was never cut")


def test_a_system_without_files_is_not_asked_for_one_all_the_time(
    probe: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float] = []

    def full() -> None:
        tries.append(time.monotonic())
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(ThreadingHTTPServer, "get_request", lambda server: full())
        with socket.create_connection(("127.0.0.1", probe.port), timeout=60):
            wait_until(lambda: len(tries) == 5, "it was tried five times")
    assert tries[4] - tries[0] > 0.3
    assert answers(probe)
