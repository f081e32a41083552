"""Throttles sign-ins: wrong passwords are bounded and cheap, and never lock a user out of a known browser."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from dashboard.auth.users import Person, Users


class LoginThrottled(Exception):
    """Raised when a password is not checked. `status` is an HTTP status, `wait` is in seconds."""

    def __init__(self, problem: str, status: int, wait: int) -> None:
        super().__init__(problem)
        self.status = status
        self.wait = wait


class _Attempt(NamedTuple):
    at: float
    name: str
    known: bool
    """Whether this user signed in before with this browser."""


class LoginThrottle:
    """Slows down password guessing, per process.

    In a minute, five wrong passwords are accepted for a name, and twenty from all unknown browsers. A browser in which
    the user signed in before is known and counted separately, so that guesses from elsewhere cannot lock the user out.
    One check takes 32 MiB and a tenth of a second of a core, so at most two run at a time.
    """

    WINDOW = 60
    OF_NAME, OF_UNKNOWN = 5, 20
    CHECKS, PATIENCE = 2, 1.0

    def __init__(self, users: Users) -> None:
        self.users = users
        self.checks = threading.BoundedSemaphore(self.CHECKS)
        self.lock = threading.Lock()
        self.attempts: list[_Attempt] = []
        """Wrong passwords of the last minute, and those that are being checked."""

    def check(self, name: str, password: str, known: bool) -> Person | None:
        """Returns the person if the password is right, else None. Raises LoginThrottled if it was not checked."""
        if not self.checks.acquire(timeout=self.PATIENCE):
            raise LoginThrottled("Too many sign-ins at once: try again in a few seconds.", 503, 2)
        try:
            self._count(name, known)
            person = self.users.check(name, password)
        finally:
            self.checks.release()
        if person is not None:
            with self.lock:
                self.attempts = [each for each in self.attempts if (each.name, each.known) != (name, known)]
        return person

    def _count(self, name: str, known: bool) -> None:
        """Counts an attempt as wrong before the check, so that parallel attempts gain nothing."""
        with self.lock:
            now = time.monotonic()
            self.attempts = [each for each in self.attempts if now - each.at < self.WINDOW]
            of_name = sum((each.name, each.known) == (name, known) for each in self.attempts)
            of_unknown = sum(not each.known for each in self.attempts)
            if of_name >= self.OF_NAME or (not known and of_unknown >= self.OF_UNKNOWN):
                problem = "Too many wrong passwords: wait a minute, or use a browser in which you signed in before."
                raise LoginThrottled(problem, 429, self.WINDOW)
            self.attempts.append(_Attempt(now, name, known))
