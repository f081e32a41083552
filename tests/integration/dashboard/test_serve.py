"""Where the dashboard listens, and where it refuses to."""

from __future__ import annotations

import signal
import socket
import urllib.request

from tests.support.harness import System, free_port, wait_until


def _answers(url: str, timeout: float = 2) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_it_starts_serves_and_ends_in_order(system: System) -> None:
    port = free_port()
    process = system.start("dashboard", DASHBOARD_PORT=str(port))
    wait_until(lambda: _answers(f"http://127.0.0.1:{port}/health/ready"), "it is ready")
    assert _answers(f"http://127.0.0.1:{port}/")
    assert _answers(f"http://127.0.0.1:{port}/static/vendor/htmx-2.0.11.min.js")
    process.send_signal(signal.SIGTERM)
    assert process.wait(40) == 0


def test_unfinished_requests_are_cut_and_block_no_others(system: System) -> None:
    port = free_port()
    system.start("dashboard", DASHBOARD_PORT=str(port))
    wait_until(lambda: _answers(f"http://127.0.0.1:{port}/health/ready"), "it is ready")
    head = b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
    for number, each in enumerate(slow):
        each.sendall(head if number % 2 else head + b"Content-Length: 1000\r\n\r\na=")
    assert _answers(f"http://127.0.0.1:{port}/health/live", timeout=25)
    for each in slow:
        with each:
            each.settimeout(60)
            assert not each.recv(1), "it is cut without an answer"


def test_a_taken_port_is_one_line_and_status_2(system: System) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = system.start("dashboard", DASHBOARD_PORT=str(port))
        assert process.wait(60) == 2
    lines = [line for line in system.logs().splitlines() if line and not line.startswith("---")]
    assert len(lines) == 1
    assert "DASHBOARD_PORT" in lines[0]


def test_it_does_not_listen_for_everybody_without_users(system: System) -> None:
    process = system.start("dashboard", BIND_HOST="0.0.0.0")
    assert process.wait(60) == 2
    assert "DASHBOARD_USERS" in system.logs()


def test_it_listens_without_users_when_told_to(system: System) -> None:
    port = free_port()
    system.start("dashboard", BIND_HOST="0.0.0.0", ALLOW_ANONYMOUS="true", DASHBOARD_PORT=str(port))
    wait_until(lambda: _answers(f"http://127.0.0.1:{port}/"), "it is ready")


def test_wrong_users_are_told_at_start(system: System) -> None:
    process = system.start("dashboard", DASHBOARD_USERS="eve")
    assert process.wait(60) == 2
    assert "'eve' is not a valid user" in system.logs()
