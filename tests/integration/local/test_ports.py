"""A port is asked about before anything is started on it."""

from __future__ import annotations

import socket

import pytest

from shared.errors import SettingsError
from shared.http.bind import free_port, port_problem
from shared.local.__main__ import Part, check_ports


def part(name: str, port: int) -> Part:
    return Part(name, name, f"{name.upper()}_PORT", True, port)


def test_free_port_has_no_problem() -> None:
    assert port_problem("127.0.0.1", free_port()) is None


def test_port_with_a_listener_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert port_problem("127.0.0.1", listener.getsockname()[1]) == "is in use by another program"


def test_address_of_another_machine_cannot_be_used() -> None:
    assert "cannot be used" in (port_problem("192.0.2.1", 8000) or "")


def test_every_taken_port_is_named_with_its_part_and_its_variable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        first, second = one.getsockname()[1], two.getsockname()[1]
        with pytest.raises(SettingsError) as caught:
            check_ports([part("gateway", first), part("worker", free_port()), part("dashboard", second)], "127.0.0.1")
    assert str(caught.value).splitlines() == [
        f"port {first} of gateway is in use by another program: set GATEWAY_PORT to another port",
        f"port {second} of dashboard is in use by another program: set DASHBOARD_PORT to another port",
    ]
