"""What is killed: programs that write rows, and relays. Each is a fork, which starts in milliseconds."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from firmq import new_task, outbox
from firmq.outbox.relay import Relay
from firmq.outbox.senders import sender_for
from firmq.outbox.sqlalchemy import SqlTable
from firmq.shared.child_processes import dies_with_us

ROLLED_BACK = 0.3
"""The share of transactions that are rolled back on purpose."""
PAUSE = 0.08
"""Mean seconds between transactions of one program."""


class Program:
    """Writes orders, each with a row of the outbox in the same transaction, for ever."""

    def __init__(self, database: str, attempts: Path) -> None:
        self.database = database
        self.attempts = attempts

    def __call__(self) -> None:
        engine = create_engine(self.database)
        while True:
            # SQLite may be locked by another process for longer than it waits.
            with suppress(OperationalError):
                self._transaction(engine)
            time.sleep(random.expovariate(1 / PAUSE))

    def _transaction(self, engine: Engine) -> None:
        with Session(engine) as session:
            ids = [outbox.add(session, new_task("order", {"order": "x"})) for _ in range(random.randint(1, 3))]
            for task_id in ids:
                session.execute(text("INSERT INTO orders (task_id) VALUES (:id)"), {"id": task_id})
            _note(self.attempts, "".join(f"{each}\n" for each in ids))
            session.flush()
            if random.random() < ROLLED_BACK:
                session.rollback()
            else:
                session.commit()


class Sending:
    """A relay that sends to this address."""

    def __init__(self, database: str, url: str) -> None:
        self.database = database
        self.url = url

    def __call__(self) -> None:
        Relay(SqlTable(create_engine(self.database)), sender_for(self.url)).run(threading.Event())


class Player:
    """One process, which is started again after it was killed."""

    def __init__(self, run: Callable[[], None], log: Path) -> None:
        self._run = run
        self._log = log
        self.pid = 0

    def start(self) -> None:
        """Forks a process that does its work."""
        ends_with_parent = dies_with_us()
        self.pid = os.fork()
        if not self.pid:
            self._live(ends_with_parent)

    def kill(self) -> None:
        """Ends the process by SIGKILL."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0

    def _live(self, ends_with_parent: Callable[[], None] | None) -> NoReturn:
        try:
            if ends_with_parent:
                ends_with_parent()
            random.seed()
            log = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            self._run()
        finally:
            os._exit(1)


def _note(path: Path, line: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)
