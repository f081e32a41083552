"""Which addresses outside a webhook may call.

What callers submit decides where our workers connect to, from inside our network: so a URL is read strictly, its name
is resolved, and only addresses of the public internet are called, unless WEBHOOK_ALLOW names the host or its network.
The gateway looks at what the URL says; the worker looks at what the name resolves to, and then connects to just that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LONGEST = 2000
_PRINTABLE = re.compile(r"[!-~]+")
_NAME = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*"
)
_ENDS_IN_A_NUMBER = re.compile(r"(.*\.)?(0[xX][0-9A-Fa-f]*|[0-9]+)")
_OURSELVES = re.compile(r"(.*\.)?(localhost|localdomain|local|internal|home\.arpa)")

NOT_PUBLIC: tuple[Network, ...] = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",  # this network, unspecified
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by carriers
            "127.0.0.0/8",  # loopback
            "169.254.0.0/16",  # link-local, and where clouds keep their metadata
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # AMT
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",  # private
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
            "168.63.129.16/32",  # a cloud's own, although it looks public
            "2001::/23",  # protocol assignments, Teredo among them
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: an IPv4 address inside
            "2620:4f:8000::/48",  # AS112
            "3fff::/20",  # documentation
        ),
    )
)
"""Of IPv6 only 2000::/3 is public at all: that leaves out ::, ::1, IPv4 inside of IPv6 (mapped, compatible, translated,
NAT64), unique local, link-local, site-local and multicast addresses."""
_PUBLIC_6 = IPv6Network("2000::/3")


class NotAllowed(ValueError):
    """A webhook may not go there; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A URL, taken apart. `host` is without brackets and in small letters."""

    url: str
    secure: bool
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """As the header Host has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPolicy:
    """Where webhooks may go: hosts (none: any), ports, and what is allowed although it is not public."""

    hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = (80, 443, 8080, 8443)
    allowed_hosts: tuple[str, ...] = ()
    allowed_networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, hosts: Iterable[str], ports: Iterable[int], allow: Iterable[str]) -> EgressPolicy:
        """From the settings. Raises ValueError for an entry of WEBHOOK_ALLOW that is neither host nor network."""
        names, networks = [], []
        for each in allow:
            try:
                networks.append(ip_network(each))
            except ValueError:
                if "/" in each or _ENDS_IN_A_NUMBER.fullmatch(each) or not _NAME.fullmatch(each):
                    raise ValueError(f"{each!r} is neither a host nor a network such as 10.0.0.0/8") from None
                names.append(each.lower())
        return cls(
            hosts=tuple(each.lower() for each in hosts),
            ports=tuple(ports),
            allowed_hosts=tuple(names),
            allowed_networks=tuple(networks),
        )

    def read(self, url: str) -> Target:
        """A URL that may be called as far as can be told without resolving its name. Raises NotAllowed."""
        target = _taken_apart(url)
        literal = _literal(target.host)
        if self.hosts and not any(_covers(each, target.host) for each in self.hosts):
            raise NotAllowed("WEBHOOK_HOSTS does not name this host")
        if target.host in self.allowed_hosts:
            return target
        if literal is not None:
            self.check(target.host, literal)
        elif _OURSELVES.fullmatch(target.host):
            raise NotAllowed("names a machine of the network inside")
        if target.port not in self.ports and not (literal and self._allows(literal)):
            raise NotAllowed(f"uses port {target.port}: webhooks go to {', '.join(map(str, self.ports))}")
        return target

    def check(self, host: str, address: Address) -> None:
        """Raises NotAllowed when this address of a host must not be called."""
        if host in self.allowed_hosts or self._allows(address) or is_public(address):
            return
        raise NotAllowed(f"{address} is no address of the public internet, and WEBHOOK_ALLOW does not name it")

    def _allows(self, address: Address) -> bool:
        return any(address.version == each.version and address in each for each in self.allowed_networks)


def is_public(address: Address) -> bool:
    """Whether an address belongs to somebody on the internet."""
    if isinstance(address, IPv6Address) and (address.scope_id or address not in _PUBLIC_6):
        return False
    return not any(address.version == each.version and address in each for each in NOT_PUBLIC)


def _covers(pattern: str, host: str) -> bool:
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def _taken_apart(url: str) -> Target:
    # Checked first, because what reads URLs drops tabs and line ends without a word.
    if len(url) > LONGEST or not _PRINTABLE.fullmatch(url) or "\\" in url:
        raise NotAllowed(f"must be at most {LONGEST} printable ASCII characters without spaces and backslashes")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").removesuffix("."), parts.port
    except ValueError as error:
        raise NotAllowed(f"cannot be read: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise NotAllowed("must begin with https:// or http://")
    if "@" in parts.netloc:
        raise NotAllowed("must not hold a user or a password: the signature tells the receiver who sends")
    if parts.fragment or port == 0:
        raise NotAllowed("must have no fragment, and no port 0")
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(url=url, secure=secure, host=host, port=port or (443 if secure else 80), path=path)


def _literal(host: str) -> Address | None:
    """The address that a host is written as; None for a name. Raises NotAllowed for what is neither.

    Of the many ways to write an IPv4 address only the plain one is taken: what others take 0x7f.1, 017700000001 or
    2130706433 for must not be a matter of opinion.
    """
    if ":" in host or _ENDS_IN_A_NUMBER.fullmatch(host):
        try:
            return ip_address(host)
        except ValueError:
            raise NotAllowed("has an address that is not written as four numbers, or as plain IPv6") from None
    if not _NAME.fullmatch(host):
        raise NotAllowed("has no host name of letters, digits, `-` and `.`")
    return None
