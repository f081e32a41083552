"""Splits URLs that may hold a password, without quoting any part of them in an error."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

QUOTE = "in a user or a password write %23 for #, %2F for /, %3F for ?, %40 for @ and %5B for ["


def split_url(url: str) -> SplitResult:
    """Splits a URL as `urlsplit` does, and checks its port.

    Raises ValueError with a text of ours: the standard library's quotes the port or all of the authority, which
    are a part of the password if it has a # or a / in it.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError(f"has an invalid port or host; {QUOTE}") from None
    return parts


def in_url(host: str) -> str:
    """Returns a host as it is written in a URL: with brackets around an IPv6 address."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
