"""Secrets are compared by `hmac.compare_digest`, or by what a library has for it, and nowhere else by `==`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.harness import ROOT

SECRET = re.compile(r"(?i)(?:^|_)(?:secret|password|passwd|signature|csrf|digest|hash|hashed|api_?key|mark)s?$")
SOURCES = [
    path for part in ("gateway", "dashboard", "worker", "shared") for path in sorted((ROOT / part).rglob("*.py"))
]
_WORDS = "(?:secret|passw|signature|csrf|digest|hash|api_?key|mark)"
SUSPECT = re.compile(rf"(?i){_WORDS}.*[=!]=|[=!]=.*{_WORDS}")
"""A line without this needs no closer look, which takes a while."""
COMPARED = {
    "shared/stores/api_keys.py": "hmac.compare_digest(digest, ",
    "dashboard/auth/security.py": "hmac.compare_digest(given.encode(), known.encode())",
    "dashboard/auth/sessions.py": "hmac.compare_digest(mark, ",
    "dashboard/auth/users.py": "check_password_hash(",
}
"""Where secrets that come from outside are compared."""
NO_SECRETS = {
    "shared/config/values.py": {"encoded == secret"},
    "worker/executors/ipc.py": {"mark != _MARK"},
    "worker/executors/pool.py": {"self.type_set.digest == hello.digest"},
    "worker/heartbeat.py": {"self.published != names.digest"},
}
"""What is compared with nothing that comes from outside: the form of a setting, how a frame begins, which set of
task types a worker has."""


def compared_by_equals(text: str) -> Iterator[str]:
    """Comparisons of something that is named like a secret with something that is no constant."""
    if not any(map(SUSPECT.search, text.splitlines())):
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
            continue
        sides = (node.left, node.comparators[0])
        if any(isinstance(side, ast.Constant) for side in sides):
            continue
        names = [each.id if isinstance(each, ast.Name) else each.attr for each in sides if hasattr(each, "ctx")
                 and isinstance(each, ast.Name | ast.Attribute)]  # fmt: skip
        if any(SECRET.search(name) for name in names):
            yield ast.unparse(node)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("given == password", 1),
        ("self.secret != other", 1),
        ("a.csrf == b.csrf", 1),
        ("secret == ''", 0),
        ("a == b", 0),
    ],
)
def test_the_search_finds_what_it_is_for(line: str, found: int) -> None:
    assert len(list(compared_by_equals(line))) == found


def test_secrets_are_compared_in_constant_time() -> None:
    found = {str(path.relative_to(ROOT)): set(compared_by_equals(path.read_text())) for path in SOURCES}
    assert {path: lines for path, lines in found.items() if lines} == NO_SECRETS
    for name, how in COMPARED.items():
        assert how in Path(ROOT / name).read_text(), name
