"""Who may try a password now: guesses are few, cost little, and keep nobody out who signed in here before."""

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
    """A password was not looked at."""

    def __init__(self, problem: str, status: int, wait: int) -> None:
        super().__init__(problem)
        self.status = status
        self.wait = wait


class LoginThrottle:
    """Slows down who guesses passwords, in each process.

    After five wrong ones for a name, that name waits half a minute; after twenty in half a minute for whatever names,
    all strangers wait. Who signed in before by a name in the same browser is no stranger to it: he is counted apart, so
    that whoever guesses elsewhere cannot keep him out.
    To look at a password takes 32 MiB and a tenth of a second of a core, so only two are looked at at a time.
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
        """The person, if the password is right. Raises KeptOut when it was not looked at."""
        if not self.looks.acquire(timeout=self.PATIENCE):
            raise LoginThrottled("Too many people are signing in just now: try again in a few seconds.", 503, 2)
        try:
            self._count(name, known)
            found = self.users.check(name, password)
        finally:
            self.looks.release()
        if found is not None:
            self._take_back(name, known)
        return found

    def _count(self, name: str, known: bool) -> None:
        """Counts a try as a wrong one before it is looked at, so that many at once are no more than one by one."""
        with self.lock:
            now = time.monotonic()
            count, until = self.wrong.get((name, known), (0, 0.0))
            if (count >= self.WRONG and now < until) or (not known and self._crowded(now)):
                problem = "Too many wrong passwords: wait half a minute, or use a browser where you signed in before."
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
    """Whether this browser is one where this person signed in before, with the password of today."""
    given = request.cookies.get(COOKIE, "")
    return users.named(name) is not None and hmac.compare_digest(given.encode(), _token(users, name).encode())


def remember(answer: Response, users: Users, name: str) -> None:
    """Has the browser show next time that this person signed in with it; that alone lets nobody in."""
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
    """Takes the secret of cookies and the password's hash to make."""
    said = f"{mark(users, name)} signed in here: {name}"
    return hmac.digest(str(current_app.secret_key).encode(), said.encode(), "sha256").hex()
