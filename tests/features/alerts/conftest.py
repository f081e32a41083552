"""The fixtures of the systems whose alerts are sent."""

from tests.integration.conftest import store, system

__all__ = ["store", "system"]
