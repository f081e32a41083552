"""`python -m tests.security.scan`: looks for secrets in what git keeps; `make check` runs it.

Over detect-secrets, whose list of known findings goes by line numbers and grows with every edit, and over gitleaks,
which is a program to fetch: what matters here are a dozen forms of key and texts that look random, and a reason for
each that is allowed to stay.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.harness import ROOT

FORMS = {
    "private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "key of ours": r"\bfq_[a-z0-9]{4,16}_[0-9a-f]{40}\b",
    "secret of webhooks": r"\bwhsec_[A-Za-z0-9+/]{32,}={0,2}",
    "cloud key": r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[A-Za-z0-9_-]{35}\b",
    "token of a service": r"\b(?:gh[opsu]_[A-Za-z0-9]{36}|github_pat_\w{50,}|glpat-[\w-]{20}|xox[abprs]-[\w-]{10,})",
    "key of a service": r"\b(?:sk|rk)_live_[A-Za-z0-9]{16,}|\bsk-[A-Za-z0-9_-]{32,}",
    "signed token": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "hash of a password": r"\b(?:scrypt|pbkdf2):[a-z0-9:]+\$[^$\s\"']+\$[0-9a-f]{32,}",
    "password in an address": r"://[^\s/:@\"'{}$<]*:(?P<value>[^\s/@\"'{}$<]{8,})@",
    "password in the open": r"(?i)(?:passw(?:or)?d|secret|token|api_?key)\w*[\"']?\s*[:=]\s*"
    r"[\"'](?P<value>[^\"'\s{}$]{12,})[\"']",
}
PATTERNS = {name: re.compile(form) for name, form in FORMS.items()}
RANDOM = re.compile(r"[A-Za-z0-9+/_-]{28,}={0,2}")
HEX = re.compile(r"[0-9a-f]{32,}")
SKIPPED = re.compile(
    r"(?:^|/)static/vendor/|\.min\.js$|^requirements\.lock$|(?:^|/)package-lock\.json$|\.(?:png|svg|ico|woff2?)$"
)
"""Of others, or hashes of what others have published, or no text."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that looks like a secret."""

    path: str
    line: int
    what: str
    text: str


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may stay where it is, and why."""

    path: str
    text: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        return finding.path.startswith(self.path) and re.search(self.text, finding.text) is not None


ALLOWED = (
    Allowed("k8s/README.md", "^password$", "shows where a password goes"),
    Allowed("docs/deploy/kubernetes.md", "^password$", "shows where a password goes"),
    Allowed("docs/", "^0af7[0-9a-f]{24}319c$", "the trace id of the W3C's example"),
    Allowed("docs/", "^(/tasks/)?01M8[0-9A-Z]{22}(-hook-1)?$", "the id of a task"),
    Allowed("shared/config/redis_address.py", "^password$", "shows where a password goes"),
    Allowed("tests/", "^[a-z]+(?:-[a-z]+)*$", "words that a test made up; no server outside of it has them"),
    Allowed("tests/", "^se?%40cret$", "words that a test made up; no server outside of it has them"),
    Allowed("tests/integration/", "^0af7[0-9a-f]{24}319c$", "the trace id of the W3C's example"),
)


def scan(files: Iterable[Path], root: Path = ROOT) -> Iterator[Finding]:
    """Everything that looks like a secret."""
    for path in files:
        name = path.relative_to(root).as_posix()
        if SKIPPED.search(name):
            continue
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError):
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            yield from (Finding(name, number, what, found) for what, found in look(line))


def look(line: str) -> Iterator[tuple[str, str]]:
    """What in a line looks like a secret, and as what."""
    for what, pattern in PATTERNS.items():
        for match in pattern.finditer(line):
            yield what, match.groupdict().get("value") or match[0]
    for match in RANDOM.finditer(line):
        if is_random(match[0]):
            yield "text that looks random", match[0]


def is_random(text: str) -> bool:
    """Whether a text is more mixed than words are."""
    if HEX.fullmatch(text):
        return entropy(text) > 3.2
    kinds = sum(bool(re.search(kind, text)) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return kinds == 3 and entropy(text) > 4.3 and not re.search(r"[A-Za-z]{12,}", text)


def entropy(text: str) -> float:
    """Bits of each character, by how often each occurs in the text."""
    counts = Counter(text).values()
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)


def kept_files() -> list[Path]:
    """What git keeps, or would with the next commit; nothing where there is no git."""
    if not (ROOT / ".git").exists():
        return []
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    return [ROOT / name for name in done.stdout.decode().split("\0") if name]


def main() -> int:
    """The exit status: 0 when nothing was found that is not allowed, and all that is allowed is there."""
    files = kept_files()
    if not files:
        print("secrets scan skipped: this is no checkout of git")
        return 0
    found = list(scan(files))
    open_ones = [each for each in found if not any(rule.covers(each) for rule in ALLOWED)]
    for each in open_ones:
        shown = f"{each.text[:6]}…"
        print(f"{each.path}:{each.line}: {each.what}: {shown}; take it out, or say in {__file__} why it may stay")
    idle = [rule for rule in ALLOWED if not any(rule.covers(each) for each in found)]
    for rule in idle:
        print(f"nothing in {rule.path} matches {rule.text!r} any more: take it out of the list")
    return 1 if open_ones or idle else 0


if __name__ == "__main__":
    sys.exit(main())
