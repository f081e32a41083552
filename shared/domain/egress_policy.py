"""The egress policy: which addresses webhooks, and tasks of the type `http`, may call.

Clients submit URLs that workers call from inside the network. So a URL is parsed strictly, its name is resolved, and
only addresses of the public internet are called, unless WEBHOOK_ALLOW (HTTP_TASK_ALLOW) has the host or its network.
The gateway checks the URL; the worker checks the resolved address and connects to exactly that one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from firmq.shared.domain.url import split_url

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
    ip_network(each)
    for group in (
        "0.0.0.0/8 127.0.0.0/8",  # unspecified, loopback
        "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10",  # private, shared by carriers
        "169.254.0.0/16 168.63.129.16/32",  # link-local with the metadata of clouds, and one of a cloud outside of it
        "192.0.0.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.175.48.0/24",  # protocols, AS112, AMT, 6to4
        "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 198.18.0.0/15",  # documentation, benchmarks
        "224.0.0.0/4 240.0.0.0/4",  # multicast, reserved, broadcast
        "2001::/23 2002::/16 2620:4f:8000::/48",  # protocols (Teredo), 6to4 (an IPv4 address inside), AS112
        "2001:db8::/32 3fff::/20",  # documentation
    )
    for each in group.split()
)
"""Of IPv6 only 2000::/3 is public at all: that leaves out ::, ::1, IPv4 inside of IPv6 (mapped, compatible, translated,
NAT64), unique local, link-local, site-local and multicast addresses."""
_PUBLIC_6 = IPv6Network("2000::/3")


class NotAllowed(ValueError):
    """The policy forbids this URL; the text gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A parsed URL. `host` is in lower case and without brackets."""

    url: str
    secure: bool
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Returns the value of the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPolicy:
    """Permitted destinations: hosts (empty: any), ports, and allowed hosts and networks that are not public.

    `settings` is the beginning of its settings' names.
    """

    settings: str = "WEBHOOK"
    hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = (80, 443, 8080, 8443)
    allowed_hosts: tuple[str, ...] = ()
    allowed_networks: tuple[Network, ...] = ()

    @classmethod
    def of(
        cls, hosts: Iterable[str], ports: Iterable[int], allow: Iterable[str], settings: str = "WEBHOOK"
    ) -> EgressPolicy:
        """Builds the policy from settings. Raises ValueError for an entry of `allow` that is no host and no network."""
        names, networks = [], []
        for each in allow:
            try:
                networks.append(ip_network(each))
            except ValueError:
                if "/" in each or _ENDS_IN_A_NUMBER.fullmatch(each) or not _NAME.fullmatch(each):
                    raise ValueError(f"{each!r} is neither a host nor a network such as 10.0.0.0/8") from None
                names.append(each.lower())
        return cls(
            settings=settings,
            hosts=tuple(each.lower() for each in hosts),
            ports=tuple(ports),
            allowed_hosts=tuple(names),
            allowed_networks=tuple(networks),
        )

    def read(self, url: str) -> Target:
        """Parses and checks a URL without resolving its name. Raises NotAllowed."""
        target = _taken_apart(url)
        literal = _literal(target.host)
        if self.hosts and not any(_covers(each, target.host) for each in self.hosts):
            raise NotAllowed(f"has a host that is not in {self.settings}_HOSTS")
        if target.host in self.allowed_hosts:
            return target
        if literal is not None:
            self.check(target.host, literal)
        elif _OURSELVES.fullmatch(target.host):
            raise NotAllowed(f"names a host of an internal network: add it to {self.settings}_ALLOW")
        if target.port not in self.ports and not (literal and self._allows(literal)):
            raise NotAllowed(f"uses port {target.port}: use one of {', '.join(map(str, self.ports))}")
        return target

    def check(self, host: str, address: Address) -> None:
        """Raises NotAllowed when this address of a host must not be called."""
        if host in self.allowed_hosts or self._allows(address) or is_public(address):
            return
        raise NotAllowed(f"{address} is not a public address: add it to {self.settings}_ALLOW if it may be called")

    def _allows(self, address: Address) -> bool:
        return any(address.version == each.version and address in each for each in self.allowed_networks)


def is_public(address: Address) -> bool:
    """Returns whether an address is on the public internet."""
    if isinstance(address, IPv6Address) and (address.scope_id or address not in _PUBLIC_6):
        return False
    return not any(address.version == each.version and address in each for each in NOT_PUBLIC)


def _covers(pattern: str, host: str) -> bool:
    return pattern == "*" or (host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern)


def _taken_apart(url: str) -> Target:
    # Checked first, because urlsplit removes tabs and line breaks silently.
    if len(url) > LONGEST or not _PRINTABLE.fullmatch(url) or "\\" in url:
        raise NotAllowed(f"must be at most {LONGEST} printable ASCII characters without spaces and backslashes")
    try:
        parts = split_url(url)
        host, port = (parts.hostname or "").removesuffix("."), parts.port
    except ValueError as error:
        raise NotAllowed(str(error)) from None
    if parts.scheme not in ("http", "https"):
        raise NotAllowed("must begin with https:// or http://")
    if "@" in parts.netloc:
        raise NotAllowed("must not contain a user or a password")
    if parts.fragment or port == 0:
        raise NotAllowed("must have no fragment, and no port 0")
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(url=url, secure=secure, host=host, port=port or (443 if secure else 80), path=path)


def _literal(host: str) -> Address | None:
    """Returns the address if the host is one, None for a name. Raises NotAllowed for anything else.

    Of the many notations of an IPv4 address only the dotted decimal one is accepted, because programs disagree on
    0x7f.1, 017700000001 and 2130706433.
    """
    if ":" in host or _ENDS_IN_A_NUMBER.fullmatch(host):
        try:
            return ip_address(host)
        except ValueError:
            raise NotAllowed("has an address in another form than four decimal numbers or plain IPv6") from None
    if not _NAME.fullmatch(host):
        raise NotAllowed("has no host name of letters, digits, `-` and `.`")
    return None
