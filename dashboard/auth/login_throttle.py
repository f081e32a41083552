"""Throttles sign-ins: wrong passwords are bounded and cheap, and never lock a user out of a known browser."""

from __future__ import annotations

import threading
import time

from werkzeug.exceptions import ServiceUnavailable, TooManyRequests

from dashboard.auth.users import Person, Users


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
        self.attempts: list[tuple[float, tuple[str, bool]]] = []
        """Wrong passwords of the last minute and those that are being checked: when, for which name, known or not."""

    def check(self, name: str, password: str, known: bool) -> Person | None:
        """Returns the person if the password is right, else None.

        `known` tells whether this user signed in before with this browser. Raises TooManyRequests or ServiceUnavailable
        if the password was not checked.
        """
        if not self.checks.acquire(timeout=self.PATIENCE):
            raise ServiceUnavailable("Too many sign-ins at once: try again in a few seconds.", retry_after=2)
        try:
            self._count(name, known)
            person = self.users.check(name, password)
        finally:
            self.checks.release()
        if person is not None:
            with self.lock:
                self.attempts = [each for each in self.attempts if each[1] != (name, known)]
        return person

    def _count(self, name: str, known: bool) -> None:
        """Counts an attempt as wrong before the check, so that parallel attempts gain nothing."""
        with self.lock:
            now = time.monotonic()
            self.attempts = [each for each in self.attempts if now - each[0] < self.WINDOW]
            of_name = sum(who == (name, known) for _, who in self.attempts)
            of_unknown = sum(not is_known for _, (_, is_known) in self.attempts)
            if of_name >= self.OF_NAME or (not known and of_unknown >= self.OF_UNKNOWN):
                problem = "Too many wrong passwords: wait a minute, or use a browser in which you signed in before."
                raise TooManyRequests(problem, retry_after=self.WINDOW)
            self.attempts.append((now, (name, known)))
