"""Personal API keys in a real browser."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser
from werkzeug.security import generate_password_hash

from tests.integration.dashboard.test_browser import LOOKS, _look, _site, chromium
from tests.support.harness import System

__all__ = ["chromium"]


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_a_user_creates_uses_and_revokes_an_api_key(system: System, chromium: Browser, scheme: Any, width: int) -> None:
    password = generate_password_hash("correct horse", "pbkdf2:sha256:1000")
    users = ",".join(f"{name}:{role}:{password}" for name, role in (("anna", "admin"), ("otto", "operator")))
    site = _site(system, chromium, PERSONAL_KEYS="read,submit,operate", DASHBOARD_USERS=users)
    page = site.open("/keys", color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True)
    name = f"{scheme}-{width}"

    def sign_in(user: str) -> None:
        page.get_by_label("Name").fill(user)
        page.get_by_label("Password").fill("correct horse")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="API keys").wait_for()

    def status(key: str) -> int:
        return httpx.get(f"{site.gateway}/tasks", headers={"Authorization": f"Bearer {key}"}, timeout=60).status_code

    sign_in("otto")
    _look(page, f"keys-empty-{name}")
    page.get_by_label("Label: its purpose").fill("the report of each Monday, which my team reads")
    page.get_by_label("read").check()
    page.get_by_role("button", name="Create").click()
    page.get_by_role("heading", name="Your new key").wait_for()
    _look(page, f"keys-new-{name}")
    key = page.locator("#new-key code").first.inner_text()
    assert status(key) == 200
    page.get_by_role("button", name="otto").click()
    page.get_by_label("Name").wait_for()
    page.goto("/sign-in?next=/keys")
    sign_in("anna")
    _look(page, f"keys-admin-{name}")
    assert key not in page.content()
    page.get_by_role("button", name="Revoke").click()
    page.locator(".flash", has_text="is revoked").wait_for()
    assert status(key) == 401
    assert site.complaints == []
    page.context.close()
