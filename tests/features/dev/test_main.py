"""Ports and an external Redis are checked before anything is started."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firmq.shared.errors import SettingsError
from firmq.shared.features.dev.main import Part, check_format, check_ports, reach
from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.support.figures import judge_since
from tests.support.harness import free_port


def part(name: str, port: int) -> Part:
    return Part(name, f"{name.upper()}_PORT", True, port)


def test_every_taken_port_is_named_with_its_part_and_its_variable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        first, second = one.getsockname()[1], two.getsockname()[1]
        with pytest.raises(SettingsError) as caught:
            check_ports([part("gateway", first), part("worker", free_port()), part("dashboard", second)], "127.0.0.1")
    assert str(caught.value).splitlines() == [
        f"port {first} of gateway is in use by another program: set GATEWAY_PORT to another port",
        f"port {second} of dashboard is in use by another program: set DASHBOARD_PORT to another port",
    ]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """The port of a server that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_redis_that_answers_is_reached(redis_url: str) -> None:
    reach(redis_url)


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "redis://192.0.2.1:6379/0"])
def test_unreachable_redis_is_reported(url: str) -> None:
    began = time.monotonic()
    with pytest.raises(SettingsError, match="correct REDIS_URL"):
        reach(url)
    judge_since("to report it", began, 3)


def test_silent_redis_is_reported(silent_port: int) -> None:
    began = time.monotonic()
    with pytest.raises(SettingsError, match="correct REDIS_URL"):
        reach(f"redis://127.0.0.1:{silent_port}/0")
    judge_since("to report it", began, 3)


def test_address_of_an_unknown_kind_is_reported() -> None:
    with pytest.raises(SettingsError, match="http://127"):
        reach("http://127.0.0.1:6379")


def test_a_redis_that_refuses_writes_is_left_to_the_services_which_wait(tmp_path: Path) -> None:
    with EmbeddedRedis(data_dir=tmp_path, options={"min-replicas-to-write": "1"}) as server:
        check_format(server, "")
