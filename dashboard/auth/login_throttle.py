"""Throttles sign-ins: wrong passwords are bounded and cheap, and never lock a user out of a known browser."""

from __future__ import annotations

import threading
import time
from math import ceil

from werkzeug.exceptions import ServiceUnavailable, TooManyRequests

from firmq.dashboard.auth.users import Person, Users


class LoginThrottle:
    """Slows down password guessing, per process.

    Five wrong passwords are accepted for a name in 150 s, and twenty from all unknown browsers in 60 s. A browser in
    which the user signed in before is known and counted separately: guesses from elsewhere cannot lock the user out.
    One check takes 32 MiB and a tenth of a second of a core, so at most two run at a time. Flask-Limiter counts either
    every sign-in or, after the response, failed ones, so that parallel guesses would gain.
    """

    OF_NAME, NAME_WINDOW = 5, 150.0
    OF_UNKNOWN, UNKNOWN_WINDOW = 20, 60.0
    CHECKS, PATIENCE = 2, 1.0

    def __init__(self, users: Users) -> None:
        self.users = users
        self.checks = threading.BoundedSemaphore(self.CHECKS)
        self.lock = threading.Lock()
        self.attempts: list[tuple[float, tuple[str, bool]]] = []
        """Wrong passwords within NAME_WINDOW and those that are being checked: when, for which name, known or not."""

    def check(self, name: str, password: str, known: bool) -> Person | None:
        """Returns the person if the password is right, else None.

        `known` is whether this user signed in before with this browser. Raises TooManyRequests or ServiceUnavailable
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
            self.attempts = [each for each in self.attempts if now - each[0] < self.NAME_WINDOW]
            of_name = [at for at, who in self.attempts if who == (name, known)]
            of_unknown = [] if known else [at for at, (_, is_known) in self.attempts if not is_known]
            wait = max(
                _free_at(of_name, self.OF_NAME, self.NAME_WINDOW) - now,
                _free_at(of_unknown, self.OF_UNKNOWN, self.UNKNOWN_WINDOW) - now,
            )
            if wait > 0:
                hint = f"Try again in {ceil(wait)} s, or use a browser in which you signed in before."
                raise TooManyRequests(f"Too many wrong passwords. {hint}", retry_after=ceil(wait))
            self.attempts.append((now, (name, known)))


def _free_at(times: list[float], most: int, window: float) -> float:
    """Returns when another attempt is within the bound of `most` attempts in a window."""
    return times[-most] + window if len(times) >= most else 0.0
