"""Tab completion in real shells, as far as they are installed."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source {script}"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; source {script}"),
    "fish": (["fish", "--no-config", "-i"], "source {script}"),
}


class Terminal:
    """A shell in a terminal."""

    def __init__(self, command: list[str], folder: Path, path: Path) -> None:
        self.screen, terminal = pty.openpty()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TASK", "COMP"))}
        environment = {**kept, "PATH": f"{path}:{kept['PATH']}", "TERM": "dumb", "PS1": "> ", "HOME": str(folder)}
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environment, "FIRMQ_URL": "http://127.0.0.1:1"},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY),
        )
        os.close(terminal)
        self.shown = ""

    def type(self, text: str) -> None:
        self.shown = ""
        os.write(self.screen, text.encode())

    def read_until(self, text: str, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < end, f"{text!r} did not appear: {self.shown!r}"
            if select.select([self.screen], [], [], 0.1)[0]:
                self.shown += os.read(self.screen, 4096).decode(errors="replace")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.screen)


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_options_values_and_files_are_completed(shell: str, tmp_path: Path) -> None:
    command, load = SHELLS[shell]
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    program = tmp_path / "bin" / "firmq"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m firmq "$@"\n')
    program.chmod(0o755)
    (tmp_path / "tasks-to-send.jsonl").touch()
    script = tmp_path / "script"
    script.write_bytes(subprocess.check_output([sys.executable, "-m", "firmq", "completion", shell]))
    terminal = Terminal(command, tmp_path, program.parent)
    try:
        terminal.type(f"{load.format(script=script)}; echo lo''aded\n")
        terminal.read_until("loaded")
        for typed, completed in (
            ("firmq que\t", "queues"),
            ("firmq queues pau\t", "pause"),
            ("firmq list --stat\t", "--status"),
            ("firmq list --status comp\t", "completed"),
            ("firmq --json comp\t", "completion"),
            ("firmq batch tasks-to\t", "tasks-to-send.jsonl"),
        ):
            terminal.type(typed)
            terminal.read_until(completed)
            terminal.type("\x15")  # clears the line
    finally:
        terminal.close()
