"""The connection to the database of the history. Each call takes a bounded time, even if it hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError

from firmq.shared.errors import HistoryUnavailable

T = TypeVar("T")

CONNECT = 2
"""Seconds for a new connection."""
AT_ONCE = 4
"""Maximum calls at a time. Calls that an unresponsive database blocks count too, so threads do not pile up."""


class Database:
    """Runs functions in transactions, each within a time."""

    def __init__(self, url: str, timeout: float) -> None:
        """`timeout` is in seconds, for each call."""
        self.timeout = timeout
        self.dialect = make_url(url).get_backend_name()
        is_file = self.dialect == "sqlite"
        options: dict[str, Any] = {"timeout": timeout} if is_file else {"connect_timeout": CONNECT}
        self.engine = create_engine(
            url,
            connect_args=options,
            pool_pre_ping=not is_file,
            pool_size=AT_ONCE,
            max_overflow=0,
            pool_timeout=timeout,
        )
        if is_file:
            event.listen(self.engine, "connect", _share_file)
        self._free = threading.BoundedSemaphore(AT_ONCE)

    def run(self, work: Callable[[Connection], T]) -> T:
        """Returns the result of `work` in a transaction that is committed. Raises HistoryUnavailable.

        It has a thread of its own, as no driver bounds the time that it waits for an answer. After a time-out it is
        unknown whether the transaction will be committed.
        """
        if not self._free.acquire(timeout=self.timeout):
            raise HistoryUnavailable(f"the database of the history hangs: {AT_ONCE} calls wait for it")
        answer: Future[T] = Future()

        def transact() -> None:
            try:
                with self.engine.begin() as connection:
                    result = work(connection)
                answer.set_result(result)
            except BaseException as error:
                answer.set_exception(error)
            finally:
                self._free.release()

        threading.Thread(target=transact, name="history", daemon=True).start()
        try:
            return answer.result(self.timeout)
        except TimeoutError:
            raise HistoryUnavailable(f"the database of the history did not answer for {self.timeout:g} s") from None
        except (DataError, IntegrityError):
            raise
        except SQLAlchemyError as error:
            reason = error.orig if isinstance(error, DBAPIError) else error
            why = " ".join(str(reason).split())[:300]
            raise HistoryUnavailable(f"the database of the history cannot be used: {why}") from error


def _share_file(connection: Any, _: object) -> None:
    """Lets readers continue while the housekeeper writes."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
