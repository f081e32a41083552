"""Users create API keys of their own, see them once, and revoke them; admins revoke any."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import pytest
from werkzeug.security import generate_password_hash
from werkzeug.test import TestResponse

from firmq.shared.features.sso.personal_keys import PersonalKey, PersonalKeys
from firmq.shared.stores.audit import Audit
from tests.features.sso.test_oidc import settings, sign_in
from tests.integration.dashboard.conftest import Browser
from tests.integration.dashboard.test_sign_in import USERS, _sign_in
from tests.support.harness import System
from tests.support.rogue_provider import rogue_provider

SCOPES = ("submit", "read", "operate", "admin")
Open = Callable[..., Browser]


def dashboard(open_browser: Open, name: str = "", **more: object) -> Browser:
    """A browser in front of a dashboard with personal keys, in which this user is signed in."""
    browser = open_browser(**{"dashboard_users": USERS, "personal_keys": SCOPES, **more})
    assert not name or _sign_in(browser, name) == 302
    return browser


def create(browser: Browser, *scopes: str, label: str = "a script", days: object = 30) -> TestResponse:
    return browser.post("/keys/create", label=label, scope=list(scopes), days=days)


def held(system: System) -> list[PersonalKey]:
    return PersonalKeys(system.scripts).all()


def test_a_key_is_shown_once_listed_and_revoked(open_browser: Open, system: System) -> None:
    browser = dashboard(open_browser, "otto")
    shown = create(browser, "read", "submit").text
    [sent] = re.findall(r"fqp_\w+", unescape(shown))
    found = PersonalKeys(system.scripts).find(sent)
    assert found
    assert (found.name, set(found.scopes)) == ("otto", {"read", "submit"})
    assert 29 < (found.expires_at - found.created_at).days <= 30
    page = browser.text("/keys")
    assert sent not in page
    assert found.id in page
    assert "The key a script is revoked" in browser.post(f"/keys/{found.id}/revoke").text
    assert held(system) == []
    entries = [(each.who, each.what, each.about) for each in Audit(system.redis).page(10)[0]]
    assert entries == [("otto", "revoked API key", found.id), ("otto", "created API key", found.id)]


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("vera", {"read"}), ("otto", {"read", "submit", "operate"}), ("anna", set(SCOPES))],
)
def test_scopes_are_at_most_those_of_the_role(open_browser: Open, system: System, name: str, allowed: set[str]) -> None:
    browser = dashboard(open_browser, name)
    assert {scope for scope in SCOPES if f'value="{scope}"' in browser.text("/keys")} == allowed
    for scope in SCOPES:
        assert create(browser, scope).status_code == (200 if scope in allowed else 400), scope
    assert {scope for key in held(system) for scope in key.scopes} == allowed


def test_scopes_are_at_most_those_of_the_setting(open_browser: Open) -> None:
    browser = dashboard(open_browser, "anna", personal_keys=("read",))
    assert create(browser, "admin").status_code == 400
    assert create(browser, "read").status_code == 200
    nothing = dashboard(open_browser, "vera", personal_keys=("submit",))
    assert "Your role has none of the scopes" in nothing.text("/keys")


@pytest.mark.parametrize(
    ("label", "days"),
    [("", 1), ("x" * 61, 1), ("a\nb", 1), ("x", 0), ("x", 31), ("x", "-1"), ("x", "many"), ("x", "²")],
)
def test_wrong_values_are_refused(open_browser: Open, system: System, label: str, days: object) -> None:
    assert create(dashboard(open_browser, "otto"), "read", label=label, days=days).status_code == 400
    assert held(system) == []


def test_a_user_has_so_many_keys_at_most(open_browser: Open, system: System) -> None:
    browser = dashboard(open_browser, "otto", personal_keys_per_user=2)
    assert [create(browser, "read").status_code for _ in range(3)] == [200, 200, 409]
    assert len(held(system)) == 2


def test_others_see_and_revoke_no_key_but_admins_do(open_browser: Open, system: System) -> None:
    create(dashboard(open_browser, "otto"), "read")
    [key] = held(system)
    other, admin = dashboard(open_browser, "vera"), dashboard(open_browser, "anna")
    assert key.id not in other.text("/keys")
    assert other.post(f"/keys/{key.id}/revoke").status_code == 404
    assert key.id in admin.text("/keys")
    assert admin.post(f"/keys/{key.id}/revoke").status_code == 200
    assert held(system) == []


def test_a_name_that_is_added_again_has_no_keys(open_browser: Open, system: System) -> None:
    """So has the same name in the list of another dashboard, which revokes nothing either."""
    create(dashboard(open_browser, "otto"), "read")
    again = f"otto:operator:{generate_password_hash('correct horse', 'pbkdf2:sha256:1000')}"
    browser = dashboard(open_browser, "otto", dashboard_users=again)
    assert "There are no keys." in browser.text("/keys")
    [key] = held(system)
    assert browser.post(f"/keys/{key.id}/revoke").status_code == 404
    assert held(system) == [key]


def test_a_user_of_the_provider_is_known_by_issuer_and_subject(open_browser: Open, system: System) -> None:
    def signed_in(**claims: str) -> Browser:
        provider.claims = {"groups": ["staff"], **claims}
        browser = open_browser(**settings(provider, personal_keys=("read",)))
        assert sign_in(browser, provider).status_code == 302
        return browser

    with rogue_provider() as provider:
        assert create(signed_in(email="ann@example.com"), "read").status_code == 200
        [key] = held(system)
        assert key.id in signed_in(email="ann.new@example.com").text("/keys")
        assert key.id not in signed_in(email="ann@example.com", sub="another").text("/keys")


def test_a_user_whom_a_proxy_names_has_no_keys(open_browser: Open, system: System) -> None:
    browser = dashboard(
        open_browser,
        dashboard_proxy_user_header="X-User",
        dashboard_proxy_secret="p" * 24,
        dashboard_proxy_role="admin",
    )
    browser.headers = {"X-User": "otto", "X-Proxy-Secret": "p" * 24}
    assert "have keys of their own" in browser.text("/keys")
    assert create(browser, "read").status_code == 403
    assert held(system) == []


def test_without_the_setting_there_is_no_page(open_browser: Open) -> None:
    browser = dashboard(open_browser, "anna", personal_keys=())
    assert browser.get("/keys").status_code == 404
    assert create(browser, "read").status_code == 404
    assert "API keys" not in browser.text("/audit")
    assert "API keys" in dashboard(open_browser, "anna").text("/audit")
