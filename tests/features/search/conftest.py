"""The fixtures of the parts that count tasks by their content, and suggest words."""

from tests.integration.conftest import store
from tests.integration.dashboard.conftest import browser, open_browser, system

__all__ = ["browser", "open_browser", "store", "system"]
