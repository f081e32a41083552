"""Services come up together, are kept up, and go down in order, whatever signals arrive."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from firmq.shared.features.dev.supervisor import ServiceLog
from tests.integration.local.watching import Program, eventually, is_gone

Start = Callable[..., Program]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def start(journal: Path) -> Iterator[Start]:
    """Starts a supervisor over a gateway, which stops first, and a worker."""
    with ExitStack() as programs:

        def start(**env: str) -> Program:
            argv = [sys.executable, "-m", "tests.features.dev.launch"]
            return programs.enter_context(Program(argv, {**os.environ, "JOURNAL": str(journal), **env}))

        yield start


def events(journal: Path) -> list[str]:
    """What happened, in order, without the process ids."""
    return [line.rpartition(" ")[0] for line in journal.read_text().splitlines()]


def pid_of(journal: Path, name: str) -> int:
    """The process that started last under this name."""
    return [int(line.split()[-1]) for line in journal.read_text().splitlines() if line.startswith(f"{name} started")][
        -1
    ]


def test_output_of_all_services_becomes_one_log(start: Start) -> None:
    supervisor = start()
    supervisor.await_output("all ready")
    assert "gateway | hello from gateway\n" in supervisor.output
    assert "worker  | hello from worker\n" in supervisor.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_stops_group_after_group(start: Start, journal: Path, number: signal.Signals) -> None:
    supervisor = start()
    supervisor.await_output("all ready")
    supervisor.signal(number)
    assert supervisor.await_end() == 0
    assert events(journal)[2:] == ["gateway told to stop", "gateway ended", "worker told to stop", "worker ended"]


def test_second_signal_reaches_a_worker_that_takes_its_time(start: Start, journal: Path) -> None:
    supervisor = start(STUBBORN="worker")
    supervisor.await_output("all ready")
    supervisor.signal(signal.SIGINT)
    eventually("the worker was told to stop", lambda: "worker told to stop" in events(journal))
    supervisor.signal(signal.SIGINT)
    assert supervisor.await_end() == 0
    assert events(journal)[-3:] == ["worker told to stop", "worker told to stop", "worker ended"]


def test_second_signal_during_the_first_group_hurries_the_next_one_too(start: Start, journal: Path) -> None:
    supervisor = start(STUBBORN="gateway", STUBBORNNESS="2")
    supervisor.await_output("all ready")
    supervisor.signal(signal.SIGINT)
    eventually("the gateway was told to stop", lambda: "gateway told to stop" in events(journal))
    supervisor.signal(signal.SIGINT)
    assert supervisor.await_end() == 0
    assert events(journal)[-1] == "worker ended"


def test_service_that_never_stops_is_reminded_and_killed(start: Start, journal: Path) -> None:
    supervisor = start(STUBBORN="worker", STUBBORNNESS="1000", GRACE="0.2")
    supervisor.await_output("all ready")
    pid = pid_of(journal, "worker")
    supervisor.signal(signal.SIGTERM)
    assert supervisor.await_end() == 0
    assert is_gone(pid)
    assert "worker  | did not stop in time and is killed" in supervisor.output
    assert events(journal).count("worker told to stop") > 1


def test_only_the_service_that_never_stops_is_said_to_be_killed(start: Start, journal: Path) -> None:
    supervisor = start(STUBBORN="worker", STUBBORNNESS="1000", GRACE="0.2", TOGETHER="yes")
    supervisor.await_output("all ready")
    supervisor.signal(signal.SIGTERM)
    assert supervisor.await_end() == 0
    assert "worker  | did not stop in time and is killed" in supervisor.output
    assert "gateway | did not stop" not in supervisor.output
    assert events(journal).count("gateway told to stop") == 1


def test_service_that_dies_is_started_again(start: Start, journal: Path) -> None:
    supervisor = start()
    supervisor.await_output("all ready")
    os.kill(pid_of(journal, "worker"), signal.SIGKILL)
    supervisor.await_output("worker  | is ready again")
    assert "worker  | was killed by SIGKILL; starting it again now" in supervisor.output
    assert events(journal).count("gateway started") == 1


def test_the_first_restarts_are_immediate_and_then_the_pause_grows(start: Start, journal: Path) -> None:
    supervisor = start()
    supervisor.await_output("all ready")
    for restarts in range(1, 6):
        os.kill(pid_of(journal, "worker"), signal.SIGKILL)
        supervisor.await_output("is ready again", times=restarts)
    pauses = re.findall(r"was killed by SIGKILL; starting it again (.*)", supervisor.output)
    assert pauses == ["now", "now", "now", "in 0.05 s", "in 0.1 s"]


def test_a_service_is_waited_for_as_long_as_it_lives_and_the_log_says_so(start: Start, journal: Path) -> None:
    gate = journal.with_name("gate")
    supervisor = start(WAITS_FOR=f"worker:{gate}")
    supervisor.await_output("worker  | runs but is not ready after", times=3)
    assert "all ready" not in supervisor.output
    gate.touch()
    supervisor.await_output("all ready")
    supervisor.signal(signal.SIGTERM)
    assert supervisor.await_end() == 0


def test_a_service_that_was_asked_to_end_is_started_again_without_a_growing_pause(start: Start, journal: Path) -> None:
    supervisor = start()
    supervisor.await_output("all ready")
    for times in (1, 2, 3):
        os.kill(pid_of(journal, "worker"), signal.SIGTERM)
        supervisor.await_output("is ready again", times=times)
    assert supervisor.output.count("stopped cleanly, on request; starting it again in 0.05 s") == 3
    assert events(journal).count("gateway started") == 1


def test_service_that_dies_before_it_was_ready_fails_the_start_with_its_last_words(start: Start) -> None:
    supervisor = start(FAULTY="worker")
    assert supervisor.await_end() == 1
    message = "worker ended with status 3 before it was ready; its last lines:\n  worker cannot find its slippers\n"
    assert message in supervisor.output
    assert "all ready" not in supervisor.output


def test_signal_during_the_start_stops_what_has_started(start: Start, journal: Path) -> None:
    supervisor = start()
    eventually("a service has started", lambda: journal.exists() and "gateway started" in events(journal))
    supervisor.signal(signal.SIGTERM)
    assert supervisor.await_end() == 0
    assert events(journal).count("gateway ended") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only the Linux kernel tells a child that its parent has died")
def test_nothing_is_left_when_the_supervisor_is_killed(start: Start) -> None:
    supervisor = start()
    supervisor.await_output("all ready")
    eventually("the services run", lambda: len(supervisor.family()) == 2)
    family = supervisor.family()
    supervisor.signal(signal.SIGKILL)
    eventually("the services have ended", lambda: all(is_gone(process.pid) for process in family))


def test_services_do_not_hear_the_terminals_ctrl_c(start: Start) -> None:
    supervisor = start()
    supervisor.await_output("all ready")
    groups = {os.getpgid(process.pid) for process in supervisor.family()}
    assert os.getpgid(supervisor.pid) not in groups
    assert len(groups) == 2


def test_children_that_outlive_their_service_are_ended(start: Start, journal: Path) -> None:
    supervisor = start(LEAVES_A_CHILD="worker")
    supervisor.await_output("all ready")
    child = next(process for process in supervisor.family() if process.name() == "sleep")
    os.kill(pid_of(journal, "worker"), signal.SIGKILL)
    eventually("the child has ended", lambda: not psutil.pid_exists(child.pid) or is_gone(child.pid))


# --- the log ---


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_names_stand_in_a_column() -> None:
    out = io.StringIO()
    log = ServiceLog(out, ["api", "worker"])
    log.line("api", "one")
    log.line("worker", "two")
    assert out.getvalue() == "api    | one\nworker | two\n"


@pytest.mark.parametrize(
    ("out", "no_colour", "lines"),
    [
        (Terminal(), "", "\x1b[36mapi    |\x1b[0m one\n\x1b[33mworker |\x1b[0m two\n"),
        (Terminal(), "1", "api    | one\nworker | two\n"),
    ],
)
def test_names_have_colours_on_a_terminal_unless_that_is_not_wanted(
    out: Terminal, no_colour: str, lines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_colour)
    log = ServiceLog(out, ["api", "worker"])
    log.line("api", "one")
    log.line("worker", "two")
    assert out.getvalue() == lines


def test_reader_that_went_away_stops_nothing() -> None:
    out = io.StringIO()
    log = ServiceLog(out, ["api"])
    out.close()
    log.line("api", "unread")
