"""The scan for secrets finds what it is there for, and nothing is left in what git keeps."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from firmq.shared.stores.api_keys import Scope, new_key
from tests.security import scan


@pytest.mark.parametrize(
    "line",
    [
        f"key: {new_key('shop', [Scope.READ])[1]}",
        f"WEBHOOK_SECRETS=whsec_{base64.b64encode(bytes(range(32))).decode()}",
        "-----BEGIN RSA " + "PRIVATE KEY-----",
        "aws_access_key_id = AKIA" + "IOSFODNN7EXAMPLE",
        "token: ghp_" + "a1B2" * 9,
        "REDIS_URL=redis://:" + "correcthorse" + "@10.0.0.1/0",
        'password = "' + "correct-horse-battery" + '"',
        "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiJhbm4ifQ12." + "c2lnbmF0dXJlLW9mLWl0",
        f"x = {hashlib.sha256(b'x').hexdigest()[:40]}",
        "y = " + base64.b64encode(bytes((n * 89 + 41) % 256 for n in range(36))).decode(),
    ],
    ids=range(10),
)
def test_what_looks_like_a_secret_is_found(line: str, tmp_path: Path) -> None:
    (tmp_path / "settings.env").write_text(f"first line\n{line}\n")
    found = list(scan.scan([tmp_path / "settings.env"], tmp_path))
    assert found
    assert {(each.path, each.line) for each in found} == {("settings.env", 2)}


@pytest.mark.parametrize(
    "line",
    [
        "from firmq.shared.redis.connections import make_pool_of_connections_that_end_in_time",
        "REDIS_PASSWORD: ${REDIS_PASSWORD:?is not set; make env writes one into .env}",
        "https://www.example.org/a/long/path/to/a/document-with-many-words-in-it.html",
        "password = getpass.getpass()",
        "test_no_limit_is_exceeded_and_no_task_forgotten",
    ],
)
def test_what_only_looks_long_is_not(line: str) -> None:
    assert not list(scan.look(line))


def test_no_tracked_file_holds_a_secret(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert scan.main() == 0, capsys.readouterr().out


def test_every_exception_has_a_reason_and_covers_one_text() -> None:
    for rule in scan.ALLOWED:
        assert len(rule.reason) > 10
        assert rule.text.startswith("^")
        assert rule.text.endswith("$")
