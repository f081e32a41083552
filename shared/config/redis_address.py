"""Parses the address of Redis: a server, or sentinels that know the current master."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

SENTINEL_PORT = 26379
PREFIX_LONGEST = 64
_PREFIX = re.compile(r"[A-Za-z0-9_.{}-]+(:[A-Za-z0-9_.{}-]+)*")
_TAKEN = {"rq", "taskqueue"}
"""How keys begin: behind a prefix with such a part they could be taken for those of another system."""
KINDS = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "redis+sentinel": "redis",
    "rediss+sentinel": "rediss",
}
"""Known schemes, each with the scheme of a single server behind it."""
_SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of Redis. With sentinels the host in `url` is a placeholder: they name the master."""

    url: str
    sentinels: tuple[tuple[str, int], ...] = ()
    service: str = ""
    sentinel_username: str | None = None
    sentinel_password: str | None = None

    @property
    def by_tls(self) -> bool:
        return self.url.startswith("rediss://")


def read_address(url: str) -> Address:
    """Parses `redis://`, `rediss://`, `unix://` and `redis[s]+sentinel://[user:pass@]h1:p1,h2:p2/service[/db]`.

    The option `key_prefix` of the address is the prefix of all keys. Raises ValueError with the expected form, without
    showing what may be a password.
    """
    parts = _split(url)
    if parts.scheme not in KINDS:
        raise ValueError(f"must start with {', '.join(f'{kind}://' for kind in KINDS)}")
    try:
        check_key_prefix(_key_prefix(parts))
    except ValueError as error:
        raise ValueError(f"key_prefix {error}") from None
    if "+" not in parts.scheme:
        _check_port(parts)
        return Address(url=url)
    secret, at, hosts = parts.netloc.rpartition("@")
    service, _, database = parts.path.strip("/").partition("/")
    if not service or not hosts or not (database.isdecimal() or not database):
        raise ValueError(f"must look like {parts.scheme}://[user:password@]host:26379,host:26379/service[/database]")
    options = dict(parse_qsl(parts.query))
    kept = {name: value for name, value in options.items() if name not in _SENTINEL_OPTIONS}
    query = f"?{urlencode(kept)}" if kept else ""
    return Address(
        url=f"{KINDS[parts.scheme]}://{secret}{at}sentinel/{database or 0}{query}",
        sentinels=tuple(map(_host_and_port, hosts.split(","))),
        service=unquote(service),
        sentinel_username=options.get("sentinel_username"),
        sentinel_password=options.get("sentinel_password"),
    )


def check_key_prefix(prefix: str) -> None:
    """Raises ValueError for an invalid prefix of keys; "" means none."""
    if prefix and not (len(prefix) <= PREFIX_LONGEST and _PREFIX.fullmatch(prefix)):
        raise ValueError(
            f"must be at most {PREFIX_LONGEST} letters, digits, _, -, ., {{ and }}, in parts with a : between them"
        )
    if taken := _TAKEN.intersection(prefix.split(":")):
        raise ValueError(f"must not have the part {min(taken)!r}, with which keys begin: choose another name")


def completed(url: str, *, username: str = "", password: str = "", **options: str) -> str:
    """Returns the address with credentials and options added that it does not have itself."""
    parts = _split(url)
    if password and "@" not in parts.netloc and parts.scheme != "unix":
        secret = f"{quote(username, safe='')}:{quote(password, safe='')}@"
        url = parts._replace(netloc=secret + parts.netloc).geturl()
    named = dict(parse_qsl(parts.query))
    more = {name: value for name, value in options.items() if value and name not in named}
    return f"{url}{'&' if parts.query else '?'}{urlencode(more)}" if more else url


def without_password(url: str) -> str:
    """Returns the address without its password and options, but with its prefix of keys, for display."""
    parts = _split(url)
    prefix = _key_prefix(parts)
    shown = f"?key_prefix={prefix}" if prefix else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{shown}"


def _key_prefix(parts: SplitResult) -> str:
    return dict(parse_qsl(parts.query)).get("key_prefix", "")


def _split(url: str) -> SplitResult:
    """Splits as `urlsplit` does, which supports IPv6 for a single host only, so sentinels are split apart."""
    scheme, _, rest = url.partition("://")
    if not scheme.lower().endswith("+sentinel"):
        return urlsplit(url)
    hosts, slash, tail = rest.partition("/")
    return urlsplit(f"{scheme}://{slash}{tail}")._replace(netloc=hosts)


def _check_port(parts: SplitResult) -> None:
    try:
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"has an invalid port: {str(error).lower()}") from None


def _host_and_port(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text.strip()}")
    _check_port(parts)
    if not parts.hostname:
        raise ValueError("has a sentinel without a host: write host:port for each")
    return parts.hostname, parts.port or SENTINEL_PORT
