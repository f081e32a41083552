"""Checks of gateway and worker in the data of a task of the type `http`, besides its JSON Schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from firmq.shared.domain.egress_policy import EgressPolicy, NotAllowed

HTTP_TYPE = "http"

_CHOSEN_HERE = frozenset(
    (
        *("host", "content-length", "transfer-encoding", "accept-encoding", "expect"),
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade"),
        *("proxy-authenticate", "proxy-authorization"),
    )
)
"""Headers of a connection, and those by which a request could be read as two."""


def mistakes(url: str, headers: Iterable[str], egress_policy: EgressPolicy) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields the place and the text of each mistake."""
    try:
        egress_policy.read(url)
    except NotAllowed as error:
        yield ("url",), str(error)
    seen: set[str] = set()
    for name in headers:
        if name.lower() in _CHOSEN_HERE:
            yield ("headers", name), "is set by Firmq: leave it out"
        if name.lower() in seen:
            yield ("headers", name), "appears twice, in different spellings: keep one of them"
        seen.add(name.lower())
