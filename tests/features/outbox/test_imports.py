"""The outbox works without greenlet, which SQLAlchemy needs for asyncio only."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["greenlet"] = None
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from firmq import new_task, outbox, task
import firmq.outbox.main

@task("invoice")
def invoice(order: int) -> None: ...

engine = create_engine("sqlite://")
with Session(engine) as session, session.begin():
    outbox.create_table(session.connection())
    outbox.add(session, new_task("process", 1))
    outbox.submit_on_commit(session, invoice, order=1)
    session.rollback()
"""


def test_an_outbox_for_threads_needs_no_greenlet() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
