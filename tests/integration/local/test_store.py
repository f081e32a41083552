"""A Redis that somebody else runs is asked once, briefly, before anything is started on it."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from shared.config.redis_address import without_password
from shared.errors import SettingsError
from shared.local.__main__ import reach


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Somebody who takes calls and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_redis_that_answers_is_reached(redis_url: str) -> None:
    reach(redis_url)


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "redis://192.0.2.1:6379/0", "redis://nowhere.invalid:6379"])
def test_unreachable_redis_is_reported_within_three_seconds(url: str) -> None:
    began = time.monotonic()
    with pytest.raises(SettingsError, match="correct REDIS_URL"):
        reach(url)
    assert time.monotonic() - began < 3


def test_silent_redis_is_reported_within_three_seconds(silent_port: int) -> None:
    began = time.monotonic()
    with pytest.raises(SettingsError, match="correct REDIS_URL"):
        reach(f"redis://127.0.0.1:{silent_port}/0")
    assert time.monotonic() - began < 3


def test_address_of_an_unknown_kind_is_reported() -> None:
    with pytest.raises(SettingsError, match="http://127"):
        reach("http://127.0.0.1:6379")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:secret@host:6379/0", "redis://host:6379/0"),
        ("rediss://user:se%40cret@host/1?password=secret", "rediss://host/1"),
        ("redis://host", "redis://host"),
        ("unix:///run/redis.sock?password=secret", "unix:///run/redis.sock"),
    ],
)
def test_password_is_left_out_of_what_is_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
