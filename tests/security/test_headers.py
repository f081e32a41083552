"""What both web parts send with every page, and what they never show."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.dashboard.conftest import Browser, open_browser, system
from tests.integration.gateway.conftest import MakeGateway, make_gateway

__all__ = ["make_gateway", "open_browser", "system"]  # fixtures

PATHS = ("/", "/tasks", "/sign-in", "/health/live", "/metrics", "/static/app.js", "/nothing", "/tasks/nobody")


def test_every_page_carries_the_headers_that_protect_browsers(open_browser: Callable[..., Browser]) -> None:
    browser = open_browser()
    for path in PATHS:
        headers = browser.client.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy, path
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"]
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert ("no-store" in headers.get("Cache-Control", "")) != path.startswith("/static/"), path


def test_no_response_shows_a_traceback_or_a_debugger(
    open_browser: Callable[..., Browser], make_gateway: MakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("planted detail")

    monkeypatch.setenv("FLASK_DEBUG", "1")
    monkeypatch.setattr("firmq.shared.stores.workers.Workers.look", fails)
    monkeypatch.setattr("firmq.shared.stores.audit.Audit.page", fails)
    for answer in (make_gateway().http.get("/workers"), open_browser().client.get("/audit")):
        assert answer.status_code == 500
        for word in ("planted detail", "Traceback", "werkzeug", "__debugger__", ".py"):
            assert word not in answer.text
    assert make_gateway().http.get("/console?__debugger__=yes&cmd=resource&f=debugger.js").status_code == 404
