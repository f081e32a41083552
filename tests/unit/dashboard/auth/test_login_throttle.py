"""How wrong passwords are counted, by a clock that is moved by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from werkzeug.exceptions import TooManyRequests

from firmq.dashboard.auth import login_throttle
from firmq.dashboard.auth.login_throttle import LoginThrottle
from firmq.dashboard.auth.users import Person, Role, Users


class FakeUsers(Users):
    """Users whose password is "right"."""

    def __init__(self) -> None:
        super().__init__([])

    def check(self, name: str, password: str) -> Person | None:
        return Person(name, Role.VIEWER) if password == "right" else None


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found = [1000.0]
    monkeypatch.setattr(login_throttle, "time", SimpleNamespace(monotonic=lambda: found[0]))
    return found


@pytest.fixture
def throttle(now: list[float]) -> LoginThrottle:
    return LoginThrottle(FakeUsers())


def _guess(throttle: LoginThrottle, name: str, times: int, known: bool = False) -> int:
    """How many of these wrong passwords are checked."""
    checked = 0
    for _ in range(times):
        try:
            assert throttle.check(name, "wrong", known) is None
        except TooManyRequests:
            continue
        checked += 1
    return checked


def test_five_wrong_passwords_for_a_name_block_it_until_the_first_is_150_s_old(
    throttle: LoginThrottle, now: list[float]
) -> None:
    for _ in range(5):
        assert _guess(throttle, "ann", 1) == 1
        now[0] += 1
    with pytest.raises(TooManyRequests, match="Try again in 145 s") as error:
        throttle.check("ann", "right", known=False)
    assert error.value.retry_after == 145
    assert throttle.check("bob", "right", known=False)
    now[0] += 144
    assert _guess(throttle, "ann", 1) == 0
    now[0] += 1
    assert throttle.check("ann", "right", known=False)


def test_a_guesser_has_no_more_than_two_attempts_a_minute_for_a_name(throttle: LoginThrottle, now: list[float]) -> None:
    checked = 0
    for _ in range(600):
        checked += _guess(throttle, "ann", 1)
        now[0] += 1
    assert checked == 5 + 3 * 5, "five in each 150 s of ten minutes"


def test_the_right_password_clears_the_count_of_its_name(throttle: LoginThrottle) -> None:
    assert _guess(throttle, "ann", 4) == 4
    assert throttle.check("ann", "right", known=False)
    assert _guess(throttle, "ann", 9) == 5


def test_unknown_browsers_together_have_twenty_and_a_known_one_its_own(throttle: LoginThrottle) -> None:
    assert sum(_guess(throttle, f"n{number}", 5) for number in range(10)) == throttle.OF_UNKNOWN
    assert _guess(throttle, "ann", 1) == 0
    assert throttle.check("ann", "right", known=True)
    assert _guess(throttle, "ann", 9, known=True) == 5
