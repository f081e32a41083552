"""Parses the address of Redis: a server, sentinels that know the current master, or the nodes of a cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode

from firmq.shared.domain.url import QUOTE, split_url

SENTINEL_PORT = 26379
PREFIX_LONGEST = 64
_PREFIX = re.compile(r"[A-Za-z0-9_.{}-]+(:[A-Za-z0-9_.{}-]+)*")
_OPTION = re.compile(
    "(db|username|password|key_prefix|partitions|store|protocol|max_connections|timeout|"
    "(ssl|socket|sentinel|retry|health|client|lib|legacy)_[a-z_]+)="
)
_TAKEN = {"rq", "firmq"}
"""Beginnings of keys: after a prefix with such a part, keys could be mistaken for another system's."""
KINDS = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "redis+sentinel": "redis",
    "rediss+sentinel": "rediss",
    "redis+cluster": "redis",
    "rediss+cluster": "rediss",
}
"""Known schemes, each with the scheme of a single server."""
CLUSTER_PORT = 6379
_SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of Redis. With sentinels or a cluster the host in `url` is a placeholder: they name the master."""

    url: str
    nodes: tuple[tuple[str, int], ...] = ()
    """Nodes of a cluster; the server is the master that has the slot of `key_prefix`."""
    key_prefix: str = ""
    sentinels: tuple[tuple[str, int], ...] = ()
    service: str = ""
    sentinel_username: str | None = None
    sentinel_password: str | None = None

    @property
    def by_tls(self) -> bool:
        return self.url.startswith("rediss://")


def read_address(url: str) -> Address:
    """Parses `redis://`, `rediss://`, `unix://` and `redis[s]+sentinel://[user:pass@]h1:p1,h2:p2/service[/db]`.

    One slot of a cluster is `redis[s]+cluster://[user:pass@]h1:p1,h2:p2?key_prefix={fq0}`. The option `key_prefix` of
    an address is the prefix of all keys. Raises ValueError with the expected form, without showing a possible password.
    """
    parts = _split(url)
    if parts.scheme not in KINDS:
        raise ValueError(f"must start with {', '.join(f'{kind}://' for kind in KINDS)}")
    try:
        check_key_prefix(_key_prefix(parts))
    except ValueError as error:
        raise ValueError(f"key_prefix {error}") from None
    _check_special_characters(parts)
    if "+" not in parts.scheme:
        return Address(url=url)
    secret, at, hosts = parts.netloc.rpartition("@")
    if parts.scheme.endswith("+cluster"):
        return _cluster(parts, f"{secret}{at}", hosts)
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


def _check_special_characters(parts: SplitResult) -> None:
    """Raises ValueError where a special character in a password, or a mistake, would cut off the address."""
    if parts.fragment or any(not _OPTION.match(each) for each in parts.query.split("&") if each):
        raise ValueError(f"has a # or an unknown option after a ?; {QUOTE}")
    if parts.scheme in ("redis", "rediss") and not re.fullmatch(r"(/\d*)?", parts.path):
        raise ValueError(f"must end with the number of a database, as in redis://host:6379/0; {QUOTE}")
    if "+" in parts.scheme and split_url(f"//{parts.netloc.rpartition('@')[0]}@host").fragment:
        raise ValueError(f"has a special character in its user or password; {QUOTE}")


def _cluster(parts: SplitResult, secret: str, hosts: str) -> Address:
    if not hosts or parts.path.strip("/"):
        raise ValueError(f"must look like {parts.scheme}://[user:password@]host:6379,host:6379?partitions=24")
    options = dict(parse_qsl(parts.query))
    options.pop("partitions", None)
    query = f"?{urlencode(options)}" if options else ""
    return Address(
        url=f"{KINDS[parts.scheme]}://{secret}cluster/0{query}",
        nodes=tuple(_host_and_port(each, CLUSTER_PORT) for each in hosts.split(",")),
        key_prefix=options.get("key_prefix", ""),
    )


def demand_one_address(url: str) -> None:
    """Raises ValueError for an address of several stores."""
    if "+cluster:" in url and "store" not in dict(parse_qsl(_split(url).query)):
        raise ValueError("REDIS_URL names a cluster: the feature `partitions`, which uses clusters, is not installed")


def check_key_prefix(prefix: str) -> None:
    """Raises ValueError for an invalid prefix of keys; "" means none."""
    if prefix and not (len(prefix) <= PREFIX_LONGEST and _PREFIX.fullmatch(prefix)):
        raise ValueError(
            f"must be at most {PREFIX_LONGEST} letters, digits, _, -, ., {{ and }}, in parts with a : between them"
        )
    if taken := _TAKEN.intersection(prefix.split(":")):
        raise ValueError(f"must not have the part {min(taken)!r}, with which keys begin: choose another name")


def completed(url: str, *, username: str = "", password: str = "", database: int = 0, **options: str) -> str:
    """Returns the address with credentials, a database and options added that it does not have itself."""
    parts = _split(url)
    named = dict(parse_qsl(parts.query))
    before_it = 1 if parts.scheme.endswith("+sentinel") else 0  # the service
    if database and parts.scheme == "unix":
        options["db"] = str(database)
    elif database and "db" not in named and len([each for each in parts.path.split("/") if each]) == before_it:
        parts = parts._replace(path=f"{parts.path.rstrip('/')}/{database}")
        url = parts.geturl()
    own, _, hosts = parts.netloc.rpartition("@")
    if password and ":" not in own:
        secret = f"{own or quote(username, safe='')}:{quote(password, safe='')}@"
        url = parts._replace(netloc=secret + hosts).geturl()
    more = {name: value for name, value in options.items() if value and name not in named}
    return f"{url}{'&' if parts.query else '?'}{urlencode(more)}" if more else url


def key_prefix_of(url: str) -> str:
    """Returns the prefix of all keys at an address, or ""."""
    return _key_prefix(_split(url))


def split_options(url: str) -> tuple[str, dict[str, str]]:
    """Returns an address without its options, and these."""
    parts = _split(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}", dict(parse_qsl(parts.query))


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
    if not scheme.lower().endswith(("+sentinel", "+cluster")):
        return split_url(url)
    if "?" in rest and ("/" not in rest or rest.index("?") < rest.index("/")):
        rest = rest.replace("?", "/?", 1)
    hosts, slash, tail = rest.partition("/")
    return split_url(f"{scheme}://{slash}{tail}")._replace(netloc=hosts)


def _host_and_port(text: str, default: int = SENTINEL_PORT) -> tuple[str, int]:
    parts = split_url(f"//{text.strip()}")
    if not parts.hostname:
        raise ValueError("has a sentinel or a node without a host: write host:port for each")
    return parts.hostname, parts.port or default
