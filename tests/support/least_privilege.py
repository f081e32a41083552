"""A server whose users may do what the shipped lists of rights say, and nothing else."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from firmq.shared.config.redis_address import completed
from firmq.shared.local.data_folder import write_secret
from firmq.shared.local.embedded_redis import EmbeddedRedis, ServerBinary, choose_server
from tests.support.harness import free_port

USER = "firmq"
SUBMITTER = "submitter"
PASSWORD = "the product's own"


def rules(name: str = "redis-acl.conf") -> list[str]:
    """A list as it is shipped."""
    lines = (files("firmq.shared") / name).read_text().splitlines()
    return [rule for line in lines if not line.startswith("#") for rule in line.split()]


def rules_with_prefix(prefix: str, name: str = "redis-acl.conf") -> list[str]:
    """The list for a system whose keys have this prefix."""
    return [re.sub("[~&]", rf"\g<0>{prefix}:", rule) if prefix else rule for rule in rules(name)]


def rules_of_6_2(rules: Sequence[str]) -> list[str]:
    """The same for Redis 6.2, which has no keys to read only and no selectors."""
    return [re.sub("%[RW]~", "~", rule).strip("()") for rule in rules]


def guarded_server(
    folder: Path,
    binary: ServerBinary | None = None,
    granted: Sequence[str] | None = None,
    *,
    kind: type[EmbeddedRedis] = EmbeddedRedis,
    prefix: str = "",
) -> EmbeddedRedis:
    """A server with an administrator, whose address is `url`, and those users; `granted` instead of the list."""
    file = folder / "users.acl"
    submitter = rules_with_prefix(prefix, "redis-acl-submit.conf")
    if (binary or choose_server()).version < (7, 0):
        submitter = rules_of_6_2(submitter)
    options = {"aclfile": str(file)}
    server = kind(data_dir=folder, port=free_port(), options=options, server=binary)
    server.folder.create()
    people = (
        f"user default on >{server.folder.password()} ~* &* +@all",
        f"user {USER} on #{_digest(PASSWORD)} {' '.join(granted or rules_with_prefix(prefix))}",
        f"user {SUBMITTER} on #{_digest(PASSWORD)} {' '.join(submitter)}",
    )
    write_secret(file, "\n".join(people) + "\n")
    return server


def url_of_user(server: EmbeddedRedis, user: str = USER) -> str:
    """The address for the parts of the product, or for a program that only submits."""
    address = f"redis://{user}:{quote(PASSWORD)}@127.0.0.1:{server.port}/0"
    return completed(address, key_prefix=getattr(server, "key_prefix", ""))


def _digest(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()
