"""Commands for API keys: create and revoke change the gateway's settings; list queries the gateway."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from firmq.shared.cli.arguments import command
from firmq.shared.cli.files import change_file
from firmq.shared.cli.output import Output, columns
from firmq.shared.client import Client
from firmq.shared.errors import SettingsError
from firmq.shared.stores.api_keys import Scope, key_lines, new_key, read_keys, read_moment

_KEYS = columns("id KEY, client, scopes, rate, expires_at EXPIRES, last_used_at LAST USED")
_DAYS = {"h": 1 / 24, "d": 1, "w": 7, "y": 365}


def add_commands(group: Any) -> None:
    """Adds the commands to the parser."""
    create = command(group, "create", "create a key; prints a line for API_KEYS or a key file", create_key)
    create.add_argument("client", help="name of the client in the log and the audit record")
    scopes = [each.value for each in Scope]
    create.add_argument("scopes", nargs="+", choices=scopes, metavar="SCOPE", help=", ".join(scopes))
    create.add_argument("--rate", help="requests per time, such as 100/s or 1000/m")
    create.add_argument("--expires", metavar="WHEN", help="after 12h, 90d or 1y, or on 2027-01-31")
    create.add_argument("--file", metavar="PATH", help="key file to add the line to; default: print it")
    command(group, "list", "list the keys of the gateway, with last use", list_keys)
    revoke = command(group, "revoke", "remove a key from a key file", revoke_key)
    revoke.add_argument("id", help="the part of the key between the two _")
    revoke.add_argument("--file", metavar="PATH", required=True)


def create_key(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    """Creates a key; its line is written to a file or standard output. The key itself is shown only once."""
    expires_at = _moment(wanted.expires) if wanted.expires else None
    key, text = new_key(wanted.client, [Scope(each) for each in wanted.scopes], wanted.rate, expires_at)
    if wanted.file:
        _add(Path(wanted.file), key.line)
    if out.as_json:
        out.value({"id": key.id, "client": key.client, "key": text, "line": key.line})
    elif wanted.file:
        print(f"added key {key.id} of {key.client} to {wanted.file}; save the key, shown only once:", file=sys.stderr)
        print(text)
    else:
        print(f"key, shown only once: {text}\nline for API_KEYS or a key file:", file=sys.stderr)
        print(key.line)


def list_keys(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    items = client.transport.ask("GET", "/admin/keys").document["items"]
    out.table(_KEYS, items if out.as_json else map(_row, items))


def revoke_key(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    """Removes a key from a key file. The gateway applies the change within a second."""
    path = Path(wanted.file)

    def without(text: str) -> str:
        lines = text.splitlines()
        kept = [line for line in lines if line.strip().partition(":")[0] != wanted.id]
        if len(kept) == len(lines):
            raise ValueError(f"{path} has no key {wanted.id}")
        return "".join(f"{line}\n" for line in kept)

    change_file(path, without)
    out.value({"id": wanted.id, "revoked": True})


def _add(path: Path, line: str) -> None:
    """Appends a line to a key file and creates the file if needed. Raises ValueError when it is not a key file."""

    def extended(text: str) -> str:
        try:
            read_keys([*key_lines(text), line])
        except SettingsError as error:
            raise ValueError(f"{path}: {error}") from None
        return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{line}\n"

    change_file(path, extended, make=True)


def _row(item: Mapping[str, Any]) -> dict[str, Any]:
    times = {
        name: datetime.fromisoformat(item[name]) if item[name] else None for name in ("expires_at", "last_used_at")
    }
    return {**item, **times, "scopes": "+".join(item["scopes"])}


def _moment(text: str) -> datetime:
    now = datetime.now(UTC)
    if match := re.fullmatch(r"(\d+)([hdwy])", text):
        try:
            moment = (now + timedelta(days=int(match[1]) * _DAYS[match[2]])).replace(microsecond=0)
        except (OverflowError, ValueError):
            raise ValueError(f"expires must be before the year 10000, got {text[:40]!r}") from None
    else:
        try:
            moment = read_moment(text)
        except ValueError:
            raise ValueError(f"expires must be like 12h, 90d, 1y or 2027-01-31, got {text[:40]!r}") from None
    if moment <= now:
        raise ValueError(f"expires must be in the future, got {text[:40]!r}")
    return moment
