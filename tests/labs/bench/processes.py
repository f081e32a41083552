"""Starting processes, ending every last one of them, and reading what they cost from /proc."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")
GRACE_SECONDS = 5.0
LINE_LENGTH = 160


class Stat(NamedTuple):
    """The part of /proc/<pid>/stat that is needed here."""

    pid: int
    parent: int
    session: int
    born: int
    ticks: int


def read_stat(pid: int) -> Stat | None:
    """None when the process is gone. `ticks` includes the children it has waited for, so no forked child is missed."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name may hold spaces and brackets; what follows its last bracket begins with field 3.
    fields = text[text.rindex(")") + 2 :].split()
    return Stat(pid, int(fields[1]), int(fields[3]), int(fields[19]), sum(map(int, fields[11:15])))


def every_process() -> Iterator[Stat]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := read_stat(int(name))):
            yield stat


def members(roots: Iterable[int]) -> list[Stat]:
    """Everything the roots started: their sessions, and descendants that opened a session of their own.

    Roots are session leaders. Process groups would not do: RQ's work-horses and others leave theirs.
    """
    ours = set(roots)
    everyone = sorted(every_process(), key=lambda stat: stat.born)
    found: dict[int, Stat] = {}
    for stat in everyone:
        if stat.pid in ours or stat.session in ours or stat.parent in found:
            found[stat.pid] = stat
    return list(found.values())


def cpu_seconds(roots: Iterable[int]) -> float:
    return sum(stat.ticks for stat in members(roots)) / TICKS


def memory(roots: Iterable[int]) -> tuple[int, int]:
    """Resident and proportional bytes; the second shares out what forked processes have in common."""
    rss = pss = 0
    for stat in members(roots):
        with contextlib.suppress(OSError):
            rolled = Path(f"/proc/{stat.pid}/smaps_rollup").read_text()
            rss += kilobytes(rolled, "Rss:")
            pss += kilobytes(rolled, "Pss:")
    return rss, pss


def kilobytes(rolled: str, label: str) -> int:
    return next((int(line.split()[1]) * 1024 for line in rolled.splitlines() if line.startswith(label)), 0)


def machine_busy_seconds() -> float:
    """Processor seconds that the whole machine has spent on anything, to tell how much of a run was not ours."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    idle = int(fields[3]) + int(fields[4])
    return (sum(map(int, fields)) - idle) / TICKS


def start(command: Sequence[str], *, env: Mapping[str, str], log: Path, cwd: Path) -> subprocess.Popen[bytes]:
    """Start in a session of its own: Ctrl-C reaches the benchmark alone, which then ends things in order."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask politely, wait a little, then kill whatever of the trees is left, found by pid and birth."""
    known = members([process.pid for process in processes])
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline and any(alive(stat) for stat in known):
        for process in processes:
            process.poll()
        time.sleep(0.02)
    kill_all([*known, *members([process.pid for process in processes])])
    for process in processes:
        process.wait()


def alive(stat: Stat) -> bool:
    """Whether it is still that process (a pid is used again) and not merely waiting to be reaped."""
    now = read_stat(stat.pid)
    return now is not None and now.born == stat.born and not is_zombie(stat.pid)


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


def kill_all(stats: Iterable[Stat]) -> None:
    for stat in stats:
        if alive(stat):
            with contextlib.suppress(ProcessLookupError):
                os.kill(stat.pid, signal.SIGKILL)


def tail(log: Path, lines: int = 4) -> str:
    """The last words of a log, on one line and cut short, for the reason of a failure."""
    text = log.read_text(errors="replace") if log.exists() else ""
    kept = [line.strip()[:LINE_LENGTH] for line in text.splitlines() if line.strip(" ^\t")]
    return " | ".join(kept[-lines:]) or "it said nothing"
