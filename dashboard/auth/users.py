"""Who may use the dashboard, and what each may do."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from werkzeug.security import check_password_hash, generate_password_hash

from shared.config.settings import Settings, exit_with
from shared.errors import SettingsError


class Role(IntEnum):
    """A higher one may do all that a lower one may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Person:
    """Whoever is asking."""

    name: str
    role: Role

    def may(self, role: Role) -> bool:
        return self.role >= role


ANYONE = Person("anonymous", Role.ADMIN)
"""Whoever reaches a dashboard that has no users: on loopback, or where ALLOW_ANONYMOUS says so."""


class Users:
    """The users of the settings and of the users' file."""

    def __init__(self, lines: Iterable[str], proxy_header: str = "", proxy_role: str = "viewer") -> None:
        """Raises SettingsError that names each line that is no user."""
        self.hashes: dict[str, tuple[Role, str]] = {}
        self.proxy_header = proxy_header
        self.proxy_role = Role[proxy_role.upper()]
        wrong = [problem for line in lines if (problem := self._add(line))]
        if wrong:
            raise SettingsError("\n".join(wrong))

    @classmethod
    def load_or_exit(cls, settings: Settings) -> Users:
        """The users, or the end of the process with status 2."""
        try:
            return cls(_lines(settings), settings.dashboard_proxy_user_header, settings.dashboard_proxy_role)
        except SettingsError as error:
            exit_with(f"DASHBOARD_USERS: {error}")

    @property
    def required(self) -> bool:
        """Whether people have to say who they are."""
        return bool(self.hashes or self.proxy_header)

    def check(self, name: str, password: str) -> Person | None:
        """The person, if the password is right; it takes as long when nobody has this name."""
        role, hashed = self.hashes.get(name, (Role.VIEWER, _NOBODY))
        good = check_password_hash(hashed, password[:1000])
        return Person(name, role) if good and name in self.hashes else None

    def named(self, name: str) -> Person | None:
        """The person of this name, as long as it is among the users."""
        found = self.hashes.get(name)
        return Person(name, found[0]) if found else None

    def from_proxy(self, name: str) -> Person:
        """The person that a trusted proxy has let in."""
        return self.named(name) or Person(name, self.proxy_role)

    def _add(self, line: str) -> str | None:
        name, _, rest = line.partition(":")
        role, _, hashed = rest.partition(":")
        if name and role.upper() in Role.__members__ and hashed.startswith(_KNOWN) and hashed.count("$") < 2:
            return f"{name[:40]!r}: the $ of its hash are gone, taken for variables: {_QUOTE}"
        if not name or role.upper() not in Role.__members__ or hashed.count("$") != 2:
            return f"{name[:40]!r} is no user: write name:role:hash with a role of viewer, operator or admin"
        if not hashed.startswith(_KNOWN):
            command = f"python -m dashboard user {name[:40]} {role}"
            return f"{name[:40]!r} has no hash that is known here: {command} makes one"
        self.hashes[name] = (Role[role.upper()], hashed)
        return None


_NOBODY = generate_password_hash("nobody")
_KNOWN = ("scrypt:", "pbkdf2:")
_QUOTE = "in .env and in a shell the line stands between single quotes"


def _lines(settings: Settings) -> list[str]:
    return [*settings.dashboard_users, *_file_lines(settings.dashboard_users_file)]


def _file_lines(path: str) -> list[str]:
    if not path:
        return []
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise SettingsError(f"DASHBOARD_USERS_FILE: {path} cannot be read: {error.strerror}") from error
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def roles() -> Mapping[str, Role]:
    """The roles by name."""
    return {role.name.lower(): role for role in Role}


def print_user(arguments: list[str]) -> None:
    """`python -m dashboard user NAME ROLE`: asks for a password, prints the line and how to write it down."""
    if len(arguments) != 2 or arguments[1] not in roles() or ":" in arguments[0] or "," in arguments[0]:
        exit_with("usage: python -m dashboard user NAME viewer|operator|admin (NAME without : and ,)")
    password = getpass.getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if len(password) < 8:
        exit_with("the password must have at least 8 characters")
    print(f"{arguments[0]}:{arguments[1]}:{generate_password_hash(password)}")
    print(f"Its $ are no variables: {_QUOTE}, DASHBOARD_USERS='…'.", file=sys.stderr)
