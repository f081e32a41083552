"""The whole product, started as `firmq dev` starts it, on free ports and a folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.harness import ROOT, free_port, wait_until


@dataclass(frozen=True, slots=True)
class Product:
    """The running product as its user sees it."""

    process: subprocess.Popen[bytes]
    log: Path
    api: httpx.Client
    ports: dict[str, int]
    data: Path

    @property
    def redis_url(self) -> str:
        return (self.data / "redis.url").read_text().strip()

    @property
    def url(self) -> str:
        """Where the gateway is."""
        return f"http://127.0.0.1:{self.ports['GATEWAY_PORT']}"

    def stop(self) -> int:
        """Ctrl-C; the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(120)


@contextmanager
def product(
    folder: Path, *modules: str, code: Path = ROOT, python: str | Path = sys.executable, **environment: str
) -> Iterator[Product]:
    """Everything up, of the package that this Python finds in the folder with the code, and nothing left afterwards."""
    names = ("GATEWAY_PORT", "DASHBOARD_PORT", "WORKER_METRICS_PORT", "HOUSEKEEPER_METRICS_PORT", "REDIS_PORT")
    ports = {name: free_port() for name in names}
    log = folder / "run.log"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("REDIS_", "TASK"))}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [python, "-m", "firmq", "dev", *modules],
            env={
                **clean,
                **{name: str(port) for name, port in ports.items()},
                "DATA_DIR": str(folder / "data"),
                **environment,
            },
            cwd=code,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        try:
            wait_until(lambda: _is_up(process, log), "the banner came", 60)
        except AssertionError as error:
            error.add_note(log.read_text())
            raise
        with httpx.Client(base_url=f"http://127.0.0.1:{ports['GATEWAY_PORT']}", timeout=60) as api:
            yield Product(process, log, api, ports, folder / "data")
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _is_up(process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    return "Submit a task:" in log.read_text()
