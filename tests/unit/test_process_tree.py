"""Ending a tree of processes ends exactly that, and a watchdog ends only what it was told of."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.harness import alive, wait_until
from worker import process_tree
from worker.process_tree import children, descendants, end_trees, started_at

_FAMILY = "import subprocess, time; subprocess.Popen(['sleep', '60'], start_new_session=True); time.sleep(60)"


@pytest.fixture
def family() -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A process, and the ids of all below it."""
    parent = subprocess.Popen([sys.executable, "-c", _FAMILY])
    wait_until(lambda: descendants(parent.pid), "it has a child")
    below = descendants(parent.pid)
    yield parent, below
    for pid in (parent.pid, *below):
        if alive(pid):
            end_trees(pid)
    parent.wait()


def watchdog() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-E", "-P", process_tree.__file__], stdin=subprocess.PIPE)


def told(dog: subprocess.Popen[bytes], line: str) -> None:
    assert dog.stdin is not None
    dog.stdin.write(f"{line}\n".encode())
    dog.stdin.flush()


def test_a_tree_ends_with_what_left_its_session(family: tuple[subprocess.Popen[bytes], list[int]]) -> None:
    parent, below = family
    assert below == children(parent.pid)
    end_trees(parent.pid)
    parent.wait()
    wait_until(lambda: not any(map(alive, below)), "all of it has ended")


@pytest.mark.parametrize("pid", [1, 0, -1])
def test_neither_the_first_process_nor_a_group_is_taken_for_a_tree(pid: int) -> None:
    with pytest.raises(ValueError, match="its root's id"):
        end_trees(pid)


def test_a_watchdog_ends_what_it_was_told_of_at_its_time_and_nothing_else(
    family: tuple[subprocess.Popen[bytes], list[int]],
) -> None:
    parent, below = family
    other = subprocess.Popen(["sleep", "60"])
    dog = watchdog()
    try:
        told(dog, f"{parent.pid}:{started_at(parent.pid)}:{time.monotonic() + 3600}")
        told(dog, f"{parent.pid}:{started_at(parent.pid)}:{time.monotonic() + 0.2} {other.pid}:1:{time.monotonic()}")
        parent.wait(20)
        wait_until(lambda: not any(map(alive, below)), "all of it has ended")
        assert alive(other.pid), "its id belongs to a process that started at another time"
    finally:
        assert dog.stdin is not None
        dog.stdin.close()
        assert dog.wait(20) == 0
        assert alive(other.pid)
        other.kill()
        other.wait()


def test_a_watchdog_whose_worker_ended_first_ends_nothing_that_it_was_not_told_of(
    family: tuple[subprocess.Popen[bytes], list[int]],
) -> None:
    """A slow start after which its parent is the first process, or whoever adopted it."""
    code = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-S', '-E', '-P', sys.argv[1]], stdin=subprocess.PIPE)\n"
    )
    subprocess.run([sys.executable, "-c", code, process_tree.__file__], check=True, timeout=20)
    time.sleep(0.5)
    assert alive(family[0].pid)
    assert all(map(alive, family[1]))
