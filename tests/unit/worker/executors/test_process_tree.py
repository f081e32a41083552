"""Ending an executor ends all that belongs to it and nothing else; a watchdog ends only what it was told of."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from firmq.worker.executors import process_tree
from firmq.worker.executors.process_tree import (
    MARK,
    ProcessIdentity,
    children,
    descendants,
    end,
    name_of,
    started_at,
)
from firmq.worker.executors.watchdog import Watchdog
from tests.support.harness import alive, wait_until

_FAMILY = "import subprocess, time; subprocess.Popen(['sleep', '600'], env={}, start_new_session=True); time.sleep(600)"
_HAS_LEFT = (
    "import subprocess; print(subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL, start_new_session=True).pid)"
)


@pytest.fixture
def family() -> Iterator[tuple[ProcessIdentity, subprocess.Popen[bytes], list[int]]]:
    """A process that stands for an executor, and the ids of all below it."""
    mark = secrets.token_hex(16)
    parent = subprocess.Popen([sys.executable, "-c", _FAMILY], env={**os.environ, MARK: mark})
    wait_until(lambda: list(map(name_of, descendants(parent.pid))) == ["sleep"], "its child runs its program")
    below = descendants(parent.pid)
    yield ProcessIdentity(parent.pid, started_at(parent.pid), mark), parent, below
    parent.kill()
    parent.wait()
    for pid in below:
        if alive(pid):
            os.kill(pid, 9)


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with it."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    assert process.poll() is None, "it was ended"
    process.kill()
    process.wait()


def watchdog() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-E", "-P", process_tree.__file__], stdin=subprocess.PIPE)


def tell(dog: subprocess.Popen[bytes], line: str) -> None:
    assert dog.stdin is not None
    dog.stdin.write(f"{line}\n".encode())
    dog.stdin.flush()


def test_an_executor_ends_with_what_left_its_session_and_its_environment(
    family: tuple[ProcessIdentity, subprocess.Popen[bytes], list[int]], other: subprocess.Popen[bytes]
) -> None:
    executor, parent, below = family
    assert below == children(parent.pid)
    assert end([executor]) == ["sleep"]
    parent.wait(90)
    wait_until(lambda: not any(map(alive, below)), "all of it has ended")
    assert end([executor]) == []


def test_what_carries_the_mark_of_an_executor_ends_after_its_death_too(other: subprocess.Popen[bytes]) -> None:
    mark = secrets.token_hex(16)
    gone = subprocess.run(
        [sys.executable, "-c", _HAS_LEFT], env={**os.environ, MARK: mark}, check=True, stdout=subprocess.PIPE
    )
    left = int(gone.stdout)
    assert alive(left)
    # Its parent goes on when exec closes their pipe, which is before the kernel knows where the new environment is.
    wait_until(lambda: mark.encode() in Path(f"/proc/{left}/environ").read_bytes(), "its environment is seen")
    assert end([ProcessIdentity(other.pid, "1", secrets.token_hex(16))]) == [], "that id belongs to another process now"
    assert end([ProcessIdentity(2**22 + 1, "1", mark)]) == ["sleep"]
    wait_until(lambda: not alive(left), "it has ended")


def test_a_proc_of_another_namespace_is_not_believed(
    family: tuple[ProcessIdentity, subprocess.Popen[bytes], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, parent, below = family
    monkeypatch.setattr(os, "readlink", lambda path: "0")
    assert (descendants(parent.pid), children(parent.pid), started_at(parent.pid)) == ([], [], "")
    assert end([executor]) == []
    assert all(map(alive, (parent.pid, *below)))


def test_a_watchdog_ends_what_it_was_told_of_at_its_time_and_nothing_else(
    family: tuple[ProcessIdentity, subprocess.Popen[bytes], list[int]], other: subprocess.Popen[bytes]
) -> None:
    executor, parent, below = family
    dog = watchdog()
    told = ":".join(map(str, executor))
    try:
        tell(dog, f"{told}:{time.monotonic() + 3600}")
        tell(dog, f"{told}:{time.monotonic() + 0.2} {other.pid}:1:none:{time.monotonic()}")
        parent.wait(90)
        wait_until(lambda: not any(map(alive, below)), "all of it has ended")
    finally:
        assert dog.stdin is not None
        dog.stdin.close()
        assert dog.wait(90) == 0


@pytest.mark.parametrize(("lease", "margin"), [(1.0, 0.3), (9.0, 2.7), (60.0, 8.0), (3600.0, 362.0)])
def test_a_lease_that_was_extended_late_is_told_before_its_old_end(
    monkeypatch: pytest.MonkeyPatch, lease: float, margin: float
) -> None:
    held = SimpleNamespace(lease_until=lease)
    executor: Any = Mock(
        identity=ProcessIdentity(7, "1", "m"), assigned={1: held}, killed_because=None, trusted_until=lease
    )
    dog = Watchdog(lease, margin)
    monkeypatch.setattr(dog, "_write", lambda data: None)
    step = lease / 2000
    now = next(each * step for each in range(2001) if each * step + margin >= lease)
    dog.beat(now - step, [executor], [])
    end_that_is_known = executor.trusted_until
    held.lease_until = now + lease  # at the last moment at which it is still trusted
    while executor.trusted_until == end_that_is_known:
        now += step
        assert now < end_that_is_known
        dog.beat(now, [executor], [])


def test_a_watchdog_that_cannot_start_is_tried_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []
    dog = Watchdog(9.0, 2.7)

    def refuse(data: bytes) -> None:
        tries.append(data)
        raise OSError(24, "too many open files")

    monkeypatch.setattr(dog, "_write", refuse)
    for tick in range(100):
        dog.beat(tick * 0.05, [], [])
    assert len(tries) <= 5


def test_a_program_that_was_there_before_the_worker_stays_with_what_it_starts(tmp_path: Path) -> None:
    """As with `sh -c 'other & exec firmq worker'`: its children are no handler's."""
    code = (
        "import subprocess, sys\n"
        "other = subprocess.Popen(['sh', '-c', 'read line; sleep 60 & echo $!; wait'], stdin=subprocess.PIPE,\n"
        "    stdout=subprocess.PIPE, text=True)\n"
        "from firmq.worker.executors.children import Children\n"
        "from firmq.worker.executors.process_tree import name_of\n"
        "children = Children()\n"
        "other.stdin.write('go\\n'); other.stdin.flush()\n"
        "later = int(other.stdout.readline())\n"
        "mine = subprocess.Popen(['sleep', '61'])\n"
        "while name_of(mine.pid) != 'sleep': pass\n"
        "assert children.end_new() == ['sleep']\n"
        "import os; os.kill(later, 0); other.kill(); os.kill(later, 9)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=90, cwd=Path(process_tree.__file__).parents[1])
