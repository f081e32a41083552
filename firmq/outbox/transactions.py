"""Submission when a transaction of SQLAlchemy commits: without a table, and at most once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

from firmq.outbox.sqlalchemy import AnySession
from firmq.worker.handlers.task_function import Submission

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

log = logging.getLogger(__name__)

P = ParamSpec("P")
_KEY = "firmq.submit_on_commit"


def submit_on_commit(session: AnySession, task: Submission[P], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Submits a task when the current transaction of `session` commits, and not if that or its savepoint is undone.

    `task` is a handler or the result of its `options`. Arguments are checked now, and raise as in `submit`. An error of
    the submission itself is logged and not raised, because the transaction is committed: the task is lost then. Use the
    outbox for tasks that must not get lost.
    """
    submit: Callable[[], Any] = task.prepare(*args, **kwargs)
    own: Session | AsyncSession = session() if callable(session) else session  # scoped sessions return theirs
    if isinstance(own, Session):
        _pending(own).add(submit)
    else:
        _pending(own.sync_session).add(lambda: _awaited(task.submit_async(*args, **kwargs)))


@dataclass(slots=True)
class _Submission:
    submit: Callable[[], Any]
    transaction: SessionTransaction


class _Pending:
    """The submissions of one session that wait for its commit."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.waiting: list[_Submission] = []
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_transaction_end", self._ended)

    def add(self, submit: Callable[[], Any]) -> None:
        self.waiting.append(_Submission(submit, self._current() or self.session.begin()))

    def _current(self) -> SessionTransaction | None:
        return self.session.get_nested_transaction() or self.session.get_transaction()

    def _committed(self, session: Session) -> None:
        """Submits tasks that wait for a transaction, or lets them wait for the one around a savepoint."""
        savepoint = session.get_nested_transaction()
        if savepoint is None:
            waiting, self.waiting = self.waiting, []
            for each in waiting:
                _submit(each.submit)
            return
        for each in self.waiting:
            if each.transaction is savepoint and savepoint.parent is not None:
                each.transaction = savepoint.parent

    def _ended(self, session: Session, transaction: SessionTransaction) -> None:
        """Drops tasks that still wait for a transaction at its end: it was rolled back."""
        self.waiting = [each for each in self.waiting if each.transaction is not transaction]


def _pending(session: Session) -> _Pending:
    if _KEY not in session.info:
        session.info[_KEY] = _Pending(session)
    pending: _Pending = session.info[_KEY]
    return pending


def _awaited(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Awaits a coroutine in the commit of an AsyncSession, which runs where that is possible."""
    from sqlalchemy.util import await_only

    await_only(coroutine)


def _submit(submit: Callable[[], Any]) -> None:
    try:
        submit()
    except Exception:
        log.exception("a task was not submitted after its transaction was committed")
