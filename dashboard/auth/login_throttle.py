"""Throttles sign-ins: wrong passwords are bounded and cheap, and never lock a user out of a known browser."""

from __future__ import annotations

import hmac
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from flask import current_app, request

from dashboard.auth.security import mark
from dashboard.auth.users import Person, Users

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

COOKIE = "taskqueue_dashboard_known"
YEAR = 365 * 24 * 3600


class LoginThrottled(Exception):
    """Raised when a password is not checked. `status` is an HTTP status, `wait` is in seconds."""

    def __init__(self, problem: str, status: int, wait: int) -> None:
        super().__init__(problem)
        self.status = status
        self.wait = wait


class LoginThrottle:
    """Slows down password guessing, per process.

    After five wrong passwords for a name, that name is blocked for 30 seconds; after twenty within 30 seconds for any
    names, all unknown browsers are blocked. A browser in which the user signed in before is known and counted
    separately, so that guesses from elsewhere cannot lock the user out.
    One check takes 32 MiB and a tenth of a second of a core, so at most two run at a time.
    """

    WRONG, WAIT, MOST = 5, 30, 10_000
    STRANGERS = 20
    LOOKS, PATIENCE = 2, 1.0

    def __init__(self, users: Users) -> None:
        self.users = users
        self.looks = threading.BoundedSemaphore(self.LOOKS)
        self.lock = threading.Lock()
        self.wrong: dict[tuple[str, bool], tuple[int, float]] = {}
        self.strangers: deque[float] = deque()

    def check(self, name: str, password: str, known: bool) -> Person | None:
        """Returns the person if the password is right, else None. Raises LoginThrottled if it was not checked."""
        if not self.looks.acquire(timeout=self.PATIENCE):
            raise LoginThrottled("Too many sign-ins at once: try again in a few seconds.", 503, 2)
        try:
            self._count(name, known)
            found = self.users.check(name, password)
        finally:
            self.looks.release()
        if found is not None:
            self._take_back(name, known)
        return found

    def _count(self, name: str, known: bool) -> None:
        """Counts an attempt as wrong before the check, so that parallel attempts gain nothing."""
        with self.lock:
            now = time.monotonic()
            count, until = self.wrong.get((name, known), (0, 0.0))
            if (count >= self.WRONG and now < until) or (not known and self._crowded(now)):
                problem = "Too many wrong passwords: wait 30 seconds, or use a browser in which you signed in before."
                raise LoginThrottled(problem, 429, self.WAIT)
            if len(self.wrong) >= self.MOST:
                self.wrong.clear()
            self.wrong[name, known] = (count + 1, now + self.WAIT)
            if not known:
                self.strangers.append(now)

    def _crowded(self, now: float) -> bool:
        while self.strangers and now - self.strangers[0] >= self.WAIT:
            self.strangers.popleft()
        return len(self.strangers) >= self.STRANGERS

    def _take_back(self, name: str, known: bool) -> None:
        with self.lock:
            self.wrong.pop((name, known), None)
            if self.strangers and not known:
                self.strangers.pop()


def is_known(users: Users, name: str) -> bool:
    """Returns whether this user signed in with this browser before, using the current password."""
    given = request.cookies.get(COOKIE, "")
    return users.named(name) is not None and hmac.compare_digest(given.encode(), _token(users, name).encode())


def remember(answer: Response, users: Users, name: str) -> None:
    """Sets the cookie that makes this browser known for the user; it does not sign the user in."""
    answer.set_cookie(
        COOKIE,
        _token(users, name),
        max_age=YEAR,
        path="/sign-in",
        secure=current_app.config["SESSION_COOKIE_SECURE"],
        httponly=True,
        samesite="Lax",
    )


def _token(users: Users, name: str) -> str:
    """Returns a token that depends on the cookie secret and on the password's hash."""
    said = f"{mark(users, name)} signed in here: {name}"
    return hmac.digest(str(current_app.secret_key).encode(), said.encode(), "sha256").hex()
