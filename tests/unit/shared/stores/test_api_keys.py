"""API keys: what a line says, what a key may do, and what happens when the file changes."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from firmq.shared.errors import SettingsError
from firmq.shared.stores.api_keys import ApiKey, Keyring, Scope, new_key, read_key

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class Clock:
    """Both clocks of a keyring."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def ring(clock: Clock, *lines: str, path: Path | str = "") -> Keyring:
    return Keyring(lines, str(path), clock=clock.monotonic, now=clock.now)


def a_key(client: str = "shop", *scopes: Scope, **more: object) -> tuple[ApiKey, str]:
    return new_key(client, scopes or (Scope.SUBMIT,), **more)  # type: ignore[arg-type]  # what a test gives


def test_a_new_key_is_found_by_its_text_and_the_line_does_not_hold_it(clock: Clock) -> None:
    key, text = a_key()
    assert ring(clock, key.line).find(text) == key
    secret = text.rpartition("_")[2]
    assert len(bytes.fromhex(secret)) * 8 == 160
    assert secret not in key.line


def test_no_two_keys_are_equal() -> None:
    assert len({a_key()[1] for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-1] + ("0" if text[-1] != "0" else "1"),
        lambda text: text.replace("fq_", "fq_a", 1)[: len(text)],
        lambda text: text + "0",
        lambda text: text[:-1],
        lambda text: text.upper(),
        lambda text: "",
        lambda text: "fq_aaaaaaaa_" + text.rpartition("_")[2],
        lambda text: text + "\n",
        lambda text: "\ud800" + text,
    ],
)
def test_what_is_not_the_whole_key_opens_nothing(clock: Clock, change: object) -> None:
    key, text = a_key()
    assert callable(change)
    assert ring(clock, key.line).find(change(text)) is None


@pytest.mark.parametrize(
    ("scope", "may"),
    [
        (Scope.SUBMIT, {Scope.SUBMIT}),
        (Scope.READ, {Scope.READ}),
        (Scope.OPERATE, {Scope.READ, Scope.OPERATE}),
        (Scope.ADMIN, set(Scope)),
    ],
)
def test_a_scope_brings_what_belongs_to_it_and_no_more(scope: Scope, may: set[Scope]) -> None:
    key, _ = a_key("shop", scope)
    assert {each for each in Scope if key.may(each)} == may


def test_a_line_says_all_of_a_key_and_is_read_as_it_was_written() -> None:
    moment = datetime(2027, 1, 31, 8, 30, tzinfo=UTC)
    key, _ = a_key("shop-1", Scope.SUBMIT, Scope.READ, rate="100/m", expires_at=moment)
    assert ":submit+read:" in key.line
    assert key.line.endswith(":rate=100/m:expires=20270131T083000Z")
    assert read_key(key.line) == key


def test_a_day_is_one_in_utc() -> None:
    key, _ = a_key()
    until = read_key(f"{key.line}:expires=2027-01-31")
    assert until.expires_at == datetime(2027, 1, 31, tzinfo=UTC)
    assert until.line.endswith(":expires=2027-01-31")


def test_an_expired_key_is_refused(clock: Clock) -> None:
    key, text = a_key(expires_at=NOW + timedelta(minutes=1))
    keys = ring(clock, key.line)
    assert keys.find(text)
    clock.seconds = 60
    assert keys.find(text) is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("shop:submit", "is not a key: create one with `firmq keys create"),
        ("", "is not a key"),
        ("ab1:shop:submit:" + "0" * 64, "is not a key"),
        ("abcd:shop:submit:" + "0" * 63, "is not a key"),
        ("abcd:sh op:submit:" + "0" * 64, "is not a client name"),
        ("abcd:shop:write:" + "0" * 64, "is not a scope"),
        ("abcd:shop:submit+:" + "0" * 64, "is not a scope"),
        ("abcd:shop:submit:" + "0" * 64 + ":rate=often", "rate must look like"),
        ("abcd:shop:submit:" + "0" * 64 + ":rate=0.5/s", "at least one request"),
        ("abcd:shop:submit:" + "0" * 64 + ":expires=soon", "expires must be like"),
        ("abcd:shop:submit:" + "0" * 64 + ":colour=red", "is unknown"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_without_its_hash(line: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as raised:
        Keyring([line])
    assert str(raised.value).startswith("API_KEYS: key 1: ")
    assert "0" * 60 not in str(raised.value)


def test_all_mistakes_are_said_together_and_one_id_twice_is_one(tmp_path: Path) -> None:
    key, _ = a_key()
    path = tmp_path / "keys"
    path.write_text(f"# ours\n\n{key.line}\nnonsense\n{key.line}\n")
    with pytest.raises(SettingsError) as raised:
        Keyring([], str(path))
    assert str(raised.value).splitlines() == [
        "API_KEYS_FILE: key 2: is not a key: create one with `firmq keys create CLIENT SCOPE`",
        f"API_KEYS_FILE: key 3: {key.id} appears twice: remove one",
    ]
    path.write_text(key.line)
    with pytest.raises(SettingsError, match=f"{key.id} is also in API_KEYS"):
        Keyring([key.line], str(path))


def test_without_keys_none_is_needed_and_a_key_file_must_have_some(clock: Clock, tmp_path: Path) -> None:
    assert not ring(clock).required
    path = tmp_path / "keys"
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        ring(clock, path=path)
    path.write_text("# none\n")
    with pytest.raises(SettingsError, match="holds no key"):
        ring(clock, path=path)


def test_two_keys_of_a_client_hold_side_by_side_until_one_is_taken_out(clock: Clock, tmp_path: Path) -> None:
    (old, old_text), (new, new_text) = a_key(), a_key()
    path = tmp_path / "keys"
    path.write_text(f"{old.line}\n")
    keys = ring(clock, path=path)
    assert keys.find(old_text)
    path.write_text(f"{old.line}\n{new.line}\n")
    clock.seconds = 2
    assert keys.find(old_text)
    assert keys.find(new_text)
    path.write_text(f"{new.line}\n")
    clock.seconds = 4
    assert keys.find(old_text) is None
    assert keys.find(new_text)


def test_a_file_that_is_replaced_behind_a_link_is_read_again(clock: Clock, tmp_path: Path) -> None:
    """As Kubernetes replaces a mounted secret."""
    (old, old_text), (new, new_text) = a_key(), a_key()
    for name, key in (("first", old), ("second", new)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "keys").write_text(key.line)
    (tmp_path / "data").symlink_to("first")
    keys = ring(clock, path=tmp_path / "data" / "keys")
    (tmp_path / "next").symlink_to("second")
    os.replace(tmp_path / "next", tmp_path / "data")
    clock.seconds = 2
    assert keys.find(new_text)
    assert keys.find(old_text) is None


def test_a_broken_key_file_keeps_the_earlier_keys(clock: Clock, tmp_path: Path) -> None:
    key, text = a_key()
    path = tmp_path / "keys"
    path.write_text(key.line)
    keys = ring(clock, path=path)
    for at, content in enumerate(("half a li", None, "ÿ"), start=1):
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content.encode("latin-1"))
        clock.seconds = at * 2
        assert keys.find(text), content
    path.write_text("")
    clock.seconds = 10
    assert keys.find(text) is None
    assert keys.required
