"""The users of the dashboard and their roles."""

from __future__ import annotations

import getpass
import hashlib
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from werkzeug.security import check_password_hash, generate_password_hash

from firmq.shared.config.settings import Settings, exit_with
from firmq.shared.errors import SettingsError


class Role(IntEnum):
    """Roles in ascending order; each includes the permissions of the lower ones."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Person:
    """The author of a request: a name and a role.

    `account` identifies the user beyond the name; "" for one who was named by a proxy, or not at all.
    """

    name: str
    role: Role
    account: str = ""

    def may(self, role: Role) -> bool:
        return self.role >= role


ANYONE = Person("anonymous", Role.ADMIN)
"""The person of every request to a dashboard without users: on loopback, or with ALLOW_ANONYMOUS."""


class Users:
    """The users from DASHBOARD_USERS and DASHBOARD_USERS_FILE."""

    def __init__(
        self, lines: Iterable[str], proxy_header: str = "", proxy_role: str = "viewer", provider_mark: str = ""
    ) -> None:
        """Raises SettingsError, which names each invalid line. `provider_mark`: see `Group.sign_in_mark`."""
        self.provider_mark = provider_mark
        self.hashes: dict[str, tuple[Role, str]] = {}
        self.proxy_header = proxy_header
        self.proxy_role = Role[proxy_role.upper()]
        wrong = [problem for line in lines if (problem := self._add(line))]
        if wrong:
            raise SettingsError("\n".join(wrong))

    @classmethod
    def load_or_exit(cls, settings: Settings) -> Users:
        """Returns the users, or exits with status 2 if a line is invalid or the file cannot be read."""
        path = settings.dashboard_users_file
        try:
            lines = [line.strip() for line in Path(path).read_text("utf-8-sig").splitlines()] if path else []
            given = [*settings.dashboard_users, *(line for line in lines if line and not line.startswith("#"))]
            header, role = settings.dashboard_proxy_user_header, settings.dashboard_proxy_role
            return cls(given, header, role, settings.sign_in_mark())
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            exit_with(f"DASHBOARD_USERS_FILE: {path} cannot be read: {why}")
        except SettingsError as error:
            exit_with(f"DASHBOARD_USERS: {error}")

    @property
    def required(self) -> bool:
        """Returns whether a sign-in is required."""
        return bool(self.hashes or self.proxy_header or self.provider_mark)

    def check(self, name: str, password: str) -> Person | None:
        """Returns the person if the password is right; takes the same time for an unknown name."""
        role, hashed = self.hashes.get(name, (Role.VIEWER, _NO_USER))
        good = check_password_hash(hashed, password[:1000])
        return Person(name, role) if good and name in self.hashes else None

    def named(self, name: str) -> Person | None:
        """Returns the user of this name, or None if there is none."""
        found = self.hashes.get(name)
        return Person(name, found[0]) if found else None

    def mark(self, name: str) -> str:
        """Returns a digest of a user's password hash and role, so that a change of either ends earlier sessions."""
        role, hashed = self.hashes[name]
        return hashlib.sha256(f"{role.name}:{hashed}".encode()).hexdigest()[:16]

    def account(self, name: str) -> str:
        """Returns the account of a user.

        It includes the hash, whose salt is random: a name that is added again, or is in the list of another dashboard,
        is another account.
        """
        return f"local:{account_digest(name, self.hashes[name][1])}"

    def from_proxy(self, name: str) -> Person:
        """Returns the person that a trusted proxy has authenticated."""
        return self.named(name) or Person(name, self.proxy_role)

    def _add(self, line: str) -> str | None:
        name, _, rest = line.partition(":")
        role, _, hashed = rest.partition(":")
        if name and role.upper() in Role.__members__ and hashed.startswith(_KNOWN) and hashed.count("$") < 2:
            return f"{name[:40]!r}: the $ signs of its hash were expanded as variables: {_QUOTE}"
        if not name or role.upper() not in Role.__members__ or hashed.count("$") != 2:
            return f"{name[:40]!r} is not a valid user: write name:role:hash, with the role viewer, operator or admin"
        if not hashed.startswith(_KNOWN):
            command = f"firmq user {name[:40]} {role}"
            return f"{name[:40]!r} has no valid password hash: create one with {command}"
        self.hashes[name] = (Role[role.upper()], hashed)
        return None


def account_digest(*parts: str) -> str:
    """Returns a digest of what identifies an account."""
    return hashlib.sha256(json.dumps(["personal keys", *parts]).encode()).hexdigest()


_NO_USER = generate_password_hash("unknown user")
_KNOWN = ("scrypt:", "pbkdf2:")
_QUOTE = "in .env and in a shell, put the line in single quotes"


def print_user(arguments: list[str]) -> None:
    """Runs `firmq user NAME ROLE`: asks for a password and prints the user's line and how to quote it."""
    if (
        len(arguments) != 2
        or arguments[1].upper() not in Role.__members__
        or ":" in arguments[0]
        or "," in arguments[0]
    ):
        exit_with("usage: firmq user NAME viewer|operator|admin (NAME without : and ,)")
    password = getpass.getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if len(password) < 8:
        exit_with("the password must have at least 8 characters")
    print(f"{arguments[0]}:{arguments[1]}:{generate_password_hash(password)}")
    print(f"The $ signs are not variables: {_QUOTE}, DASHBOARD_USERS='…'.", file=sys.stderr)
