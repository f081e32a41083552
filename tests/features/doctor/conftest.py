"""The fixtures of the systems that the doctor examines."""

from tests.integration.client.conftest import running
from tests.integration.conftest import store, system

__all__ = ["running", "store", "system"]
