"""The error of a connection whose server cannot be used (any longer)."""

from __future__ import annotations

from redis.exceptions import ConnectionError


class Refusing(ConnectionError):
    """The server at the other end takes no writes, or no commands at all."""
