"""The fixtures of the systems that the doctor examines."""

from tests.integration.conftest import store, system

__all__ = ["store", "system"]
