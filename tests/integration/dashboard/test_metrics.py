"""What the dashboard shows to Prometheus."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis.exceptions import ConnectionError

from tests.integration.dashboard.conftest import Browser


def test_requests_and_refreshes_are_counted_and_timed(browser: Browser) -> None:
    browser.text("/")
    browser.get("/tasks/some-id")
    browser.get("/made/up")
    browser.client.open("/", method="BREW")
    page = browser.text("/metrics")
    assert 'firmq_dashboard_request_duration_seconds_count{method="GET",route="/",status="2xx"} 1.0' in page
    assert 'route="none"' in page
    assert "firmq_dashboard_refresh_duration_seconds_count 1.0" in page
    assert "process_start_time_seconds" in page
    for made_up in ("some-id", "made/up", "BREW", "_created"):
        assert made_up not in page


def test_a_look_that_fails_is_counted(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise ConnectionError("gone")

    monkeypatch.setattr("redis.Redis.time", away)
    assert browser.get("/").status_code == 503
    assert "firmq_dashboard_refresh_failures_total 1.0" in browser.text("/metrics")


def test_prometheus_need_not_sign_in(open_browser: Callable[..., Browser]) -> None:
    closed = open_browser(dashboard_users="ann:admin:scrypt:1:1:1$salt$hash")
    assert closed.get("/").status_code == 302
    assert closed.get("/metrics").status_code == 200
