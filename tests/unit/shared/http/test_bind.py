"""Ports and the limit of open files."""

from __future__ import annotations

import socket
import subprocess
import sys

from firmq.shared.http.bind import free_port, port_problem
from tests.support.harness import ROOT


def test_a_process_makes_room_for_files_as_far_as_it_may() -> None:
    code = (
        "import resource as r; from firmq.shared.http.bind import raise_file_limit as room; "
        "r.setrlimit(r.RLIMIT_NOFILE, (100, 300)); "
        "print(room(50), room(200), r.getrlimit(r.RLIMIT_NOFILE), room(400), r.getrlimit(r.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "50 200 (200, 300) 300 (300, 300)"


def test_free_port_has_no_problem() -> None:
    assert port_problem("127.0.0.1", free_port()) is None


def test_port_with_a_listener_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert port_problem("127.0.0.1", listener.getsockname()[1]) == "is in use by another program"


def test_address_of_another_machine_cannot_be_used() -> None:
    assert "cannot be used" in (port_problem("192.0.2.1", 8000) or "")
