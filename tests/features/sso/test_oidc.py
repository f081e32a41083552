"""People sign in with the identity of their company, and nobody else gets in."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from redis import Redis
from werkzeug.test import TestResponse

from firmq.dashboard.auth.users import Role
from firmq.dashboard.features.sso.oidc import role_of
from firmq.shared.config.settings import load
from firmq.shared.errors import SettingsError
from tests.integration.dashboard.conftest import Browser
from tests.integration.dashboard.test_sign_in import HASH
from tests.support import oidc_provider
from tests.support.harness import ROOT, free_port, wait_until
from tests.support.keys import keys
from tests.support.rogue_provider import CLIENT, SECRET, RogueProvider, rogue_provider

HOME = "https://queue.example.com"
ROLES = {"queue-admins": "admin", "staff": "viewer"}


@pytest.fixture
def provider() -> Iterator[RogueProvider]:
    with rogue_provider() as running:
        yield running


@pytest.fixture
def dashboard(open_browser: Callable[..., Browser], provider: RogueProvider) -> Browser:
    return open_browser(**settings(provider))


def settings(provider: RogueProvider, **more: object) -> dict[str, Any]:
    return {
        "oidc_issuer": provider.issuer,
        "oidc_client_id": CLIENT,
        "oidc_client_secret": SECRET,
        "oidc_roles": ROLES,
        "dashboard_url": HOME,
        **more,
    }


def callback(browser: Browser, provider: RogueProvider, target: str = "/tasks") -> str:
    """Begins a sign-in; the path to which the provider sends the browser back."""
    begun = browser.client.get("/sign-in/oidc", query_string={"next": target})
    assert begun.status_code == 302, begun.text
    return provider.authorized(begun.headers["Location"]).removeprefix(HOME)


def sign_in(browser: Browser, provider: RogueProvider, target: str = "/tasks") -> TestResponse:
    return browser.client.get(callback(browser, provider, target))


def refused(browser: Browser, answer: TestResponse) -> bool:
    """Whether an answer signs nobody in."""
    return answer.status_code == 401 and browser.client.get("/tasks").status_code == 302


# --- a real provider ---


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The issuer of a real provider."""
    port, folder = free_port(), tmp_path_factory.mktemp("provider")
    command = [sys.executable, "-m", "tests.support.oidc_provider", str(port), str(folder)]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen([*command, f"{HOME}/sign-in/oidc/callback"], cwd=ROOT, stdout=log, stderr=log)
    issuer = f"http://127.0.0.1:{port}/o"
    try:
        wait_until(lambda: process.poll() is not None or _answers(issuer), "the provider answers")
        assert process.poll() is None, (folder / "log").read_text()
        yield issuer
    finally:
        process.terminate()
        process.wait()


def _answers(issuer: str) -> bool:
    try:
        return httpx.get(f"{issuer}/.well-known/openid-configuration").is_success
    except httpx.HTTPError:
        return False


def through(browser: Browser, person: httpx.Client, name: str) -> TestResponse:
    """Signs in at the real provider, as someone who types name and password there."""
    asked = browser.client.get("/sign-in/oidc?next=/workers").headers["Location"]
    shown = person.get(asked)
    if "/login" in shown.headers["Location"]:
        form = {"username": name, "password": oidc_provider.PASSWORD}
        [back] = parse_qs(urlsplit(shown.headers["Location"]).query)["next"]
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(asked))
        entered = person.get(f"{origin}/login", params={**form, "next": back})
        shown = person.get(origin + entered.headers["Location"])
    assert shown.headers["Location"].startswith(f"{HOME}/sign-in/oidc/callback?")
    return browser.client.get(shown.headers["Location"].removeprefix(HOME))


def test_people_sign_in_at_a_real_provider_and_out_again(real: str, open_browser: Callable[..., Browser]) -> None:
    browser = open_browser(
        oidc_issuer=real,
        oidc_client_id=oidc_provider.CLIENT,
        oidc_client_secret=oidc_provider.SECRET,
        oidc_roles=ROLES,
        dashboard_url=HOME,
    )
    with httpx.Client() as ann:
        back = through(browser, ann, "ann")
        assert (back.status_code, back.headers["Location"]) == (302, "/workers")
        assert "ann@example.com ⎋" in browser.text("/workers")
        left = browser.post("/sign-out", follow=False)
        assert left.headers["Location"] == "/sign-in?signed-out"
        assert "Sign out of the identity provider" in browser.text("/sign-in?signed-out")
        assert browser.client.get("/tasks").status_code == 302
        leaving = browser.client.get("/sign-in/oidc/leave").headers["Location"]
        assert ann.get(leaving).status_code in (200, 302)
    with httpx.Client() as eve:
        assert through(browser, eve, "eve").status_code == 302
        assert "eve@example.com ⎋" in browser.text("/tasks")
        assert browser.post("/queues/normal/pause", reason="x").status_code == 403


# --- attacks ---


Lie = Callable[[RogueProvider], object]


def signing(how: Callable[[RogueProvider, dict[str, Any]], str], *offered: str) -> Lie:
    """Tokens are signed in another way, and the metadata offer these algorithms."""

    def lie(rogue: RogueProvider) -> None:
        rogue.sign = how
        if offered:
            rogue.metadata["id_token_signing_alg_values_supported"] = list(offered)

    return lie


LIES: dict[str, Lie] = {
    "another issuer": lambda rogue: rogue.claims.update(iss="https://evil.example"),
    "no issuer": lambda rogue: rogue.claims.update(iss=None),
    "another audience": lambda rogue: rogue.claims.update(aud="another"),
    "another audience, for us": lambda rogue: rogue.claims.update(aud="another", azp=CLIENT),
    "several audiences, for another": lambda rogue: rogue.claims.update(aud=[CLIENT, "another"], azp="another"),
    "no audience": lambda rogue: rogue.claims.update(aud=None),
    "another nonce": lambda rogue: rogue.claims.update(nonce="replayed"),
    "no nonce": lambda rogue: rogue.claims.update(nonce=None),
    "an expired token": lambda rogue: rogue.claims.update(exp=int(time.time()) - 60),
    "a token of the future": lambda rogue: rogue.claims.update(iat=int(time.time()) + 600),
    "a token without end": lambda rogue: rogue.claims.update(exp=None),
    "no subject": lambda rogue: rogue.claims.update(sub=None),
    "no signature": signing(RogueProvider.unsigned),
    "no signature, as offered": signing(RogueProvider.unsigned, "none", "RS256"),
    "a signature by the client's secret": signing(RogueProvider.with_secret, "HS256", "RS256"),
    "a signature by the public key": signing(RogueProvider.with_public_key, "HS256", "RS256"),
    "a signature by another key": signing(lambda rogue, claims: RogueProvider().signed(claims)),
    "no ID token": lambda rogue: rogue.answer.update(id_token=None),
    "an error": lambda rogue: rogue.answer.update(error="server_error"),
    "no role": lambda rogue: rogue.claims.update(groups=["others"]),
    "groups as text of a list": lambda rogue: rogue.claims.update(groups="['queue-admins']"),
    "a name of unprintable characters": lambda rogue: rogue.claims.update(email="ann\x1b[2J"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_token_that_is_not_right_signs_nobody_in(lie: str, dashboard: Browser, provider: RogueProvider) -> None:
    LIES[lie](provider)
    assert refused(dashboard, sign_in(dashboard, provider))


def test_a_right_token_signs_in(dashboard: Browser, provider: RogueProvider) -> None:
    assert sign_in(dashboard, provider).headers["Location"] == "/tasks"
    assert "ann@example.com ⎋" in dashboard.text("/tasks")
    assert "code_verifier" in provider.requests[0]
    assert provider.begun["code_challenge_method"] == "S256"


def test_metadata_of_another_issuer_are_refused(dashboard: Browser, provider: RogueProvider) -> None:
    provider.metadata["issuer"] = "https://evil.example"
    begun = dashboard.client.get("/sign-in/oidc")
    assert (begun.status_code, "differs from OIDC_ISSUER" in begun.text) == (503, True)
    provider.metadata.clear()
    assert sign_in(dashboard, provider).status_code == 302


def test_a_provider_that_is_away_is_said(dashboard: Browser, open_browser: Callable[..., Browser]) -> None:
    away = open_browser(**settings(RogueProvider(port=free_port())))
    answer = away.client.get("/sign-in/oidc")
    assert (answer.status_code, "does not answer" in answer.text) == (503, True)


def test_a_state_is_good_once_and_in_its_browser_only(dashboard: Browser, provider: RogueProvider) -> None:
    path = callback(dashboard, provider)
    other = Browser(dashboard.app, dashboard.app.test_client())
    assert refused(other, other.client.get(path))
    with dashboard.client.session_transaction() as session:
        before = dict(session)
    assert dashboard.client.get(path).status_code == 302
    with other.client.session_transaction() as session:
        session.update(before)
    assert refused(other, other.client.get(path))
    assert len(provider.requests) == 1


def test_sign_ins_of_strangers_store_nothing(
    dashboard: Browser, provider: RogueProvider, redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_in(Browser(dashboard.app, dashboard.app.test_client()), provider)
    before, size = redis_client.dbsize(), 0
    for _ in range(20):
        stranger = dashboard.app.test_client()
        path = callback(Browser(dashboard.app, stranger), provider)
        assert stranger.get(path.replace("code=", "code=wrong-")).status_code == 401
        begun = dashboard.client.get("/sign-in/oidc")
        size = max(size, len(begun.headers["Set-Cookie"]))
    assert redis_client.dbsize() == before
    assert size < 4000, "browsers drop larger cookies"
    path = callback(dashboard, provider)
    now = time.time()
    monkeypatch.setattr("firmq.dashboard.features.sso.oidc.time.time", lambda: now + 3601)
    assert refused(dashboard, dashboard.client.get(path))


def test_an_address_that_was_not_verified_is_no_name(
    open_browser: Callable[..., Browser], provider: RogueProvider
) -> None:
    browser = open_browser(**settings(provider, oidc_name_claim="email"))
    provider.claims.update(email="boss@shop.example", email_verified=False, sub="s-17")
    sign_in(browser, provider)
    page = browser.text("/tasks")
    assert "s-17" in page
    assert "boss@shop.example" not in page


@pytest.mark.parametrize("query", ["", "?code=c0de", "?state=x", "?code=c0de&state=made-up", "?error=access_denied"])
def test_an_answer_without_its_question_is_refused(query: str, dashboard: Browser, provider: RogueProvider) -> None:
    assert refused(dashboard, dashboard.client.get(f"/sign-in/oidc/callback{query}"))
    assert provider.requests == []


def test_an_answer_of_another_provider_is_refused(dashboard: Browser, provider: RogueProvider) -> None:
    assert refused(dashboard, dashboard.client.get(f"{callback(dashboard, provider)}&iss=https://evil.example"))
    assert provider.requests == []


@pytest.mark.parametrize("target", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_a_sign_in_leads_to_pages_of_this_site_only(target: str, dashboard: Browser, provider: RogueProvider) -> None:
    assert sign_in(dashboard, provider, target).headers["Location"] == "/"


def test_text_of_the_provider_is_not_shown(dashboard: Browser) -> None:
    shown = dashboard.client.get("/sign-in/oidc/callback?error=x&error_description=<script>call 0900</script>")
    assert "0900" not in shown.text


def test_the_address_of_a_request_does_not_decide_where_to_return(dashboard: Browser, provider: RogueProvider) -> None:
    dashboard.client.get("/sign-in/oidc", headers={"Host": "evil.example", "X-Forwarded-Host": "evil.example"})
    provider.authorized(dashboard.client.get("/sign-in/oidc", headers={"Host": "evil.example"}).headers["Location"])
    assert provider.begun["redirect_uri"] == f"{HOME}/sign-in/oidc/callback"


# --- roles and names ---


@pytest.mark.parametrize(
    ("claim", "role"),
    [
        (["staff"], Role.VIEWER),
        (["staff", "queue-admins"], Role.ADMIN),
        ("staff", Role.VIEWER),
        (["others"], None),
        (None, None),
        ([["staff"], {"staff": 1}, 7], None),
    ],
)
def test_the_highest_role_of_a_claim_counts(claim: object, role: Role | None) -> None:
    assert role_of(claim, ROLES) is role


def test_a_star_gives_everyone_a_role() -> None:
    assert role_of(["others"], {**ROLES, "*": "viewer"}) is Role.VIEWER
    assert role_of(["*"], ROLES) is None


def test_roles_may_be_inside_another_claim_or_in_the_user_info(
    open_browser: Callable[..., Browser], provider: RogueProvider
) -> None:
    provider.claims["realm_access"] = {"roles": ["staff"]}
    inside = open_browser(**settings(provider, oidc_roles_claim="realm_access.roles"))
    assert sign_in(inside, provider).status_code == 302
    provider.userinfo = {"sub": "42", "teams": ["staff"]}
    asked = open_browser(**settings(provider, oidc_roles_claim="teams"))
    assert sign_in(asked, provider).status_code == 302
    provider.claims["realm_access"] = {"verify_caller": True}
    provider.userinfo = {"sub": "42", "realm_access": {"roles": ["staff"]}}
    apart = open_browser(**settings(provider, oidc_roles_claim="realm_access.roles"))
    assert sign_in(apart, provider).status_code == 302, "the token has another part of the claim"
    provider.userinfo = {"sub": "another", "teams": ["staff"]}
    other = open_browser(**settings(provider, oidc_roles_claim="teams"))
    assert refused(other, sign_in(other, provider))


def test_nobody_takes_the_name_of_a_user_of_the_settings(
    open_browser: Callable[..., Browser], provider: RogueProvider
) -> None:
    provider.claims.update(email="anna", groups=["staff"])
    browser = open_browser(**settings(provider, dashboard_users=(f"anna:admin:{HASH}",)))
    sign_in(browser, provider)
    assert "anna (identity prov" in browser.text("/tasks")
    assert browser.post("/locks/step-down", reason="x").status_code == 403


# --- sessions that end ---


def test_a_session_ends_when_nobody_uses_it(
    open_browser: Callable[..., Browser], provider: RogueProvider, redis_client: Redis
) -> None:
    browser = open_browser(**settings(provider, dashboard_idle=600))
    sign_in(browser, provider)
    [activity] = redis_client.keys(keys.dashboard_activity("*"))
    redis_client.pexpire(activity, 5000)
    browser.client.get("/tasks", headers={"HX-Request": "true"})
    assert redis_client.pttl(activity) <= 5000
    browser.client.get("/tasks")
    assert redis_client.pttl(activity) > 5000
    redis_client.delete(activity)
    assert browser.client.get("/tasks").status_code == 302


def test_a_session_ends_in_any_case(dashboard: Browser, provider: RogueProvider, redis_client: Redis) -> None:
    sign_in(dashboard, provider)
    [session] = redis_client.keys(keys.dashboard_session("*"))
    before = redis_client.pttl(session)
    dashboard.client.get("/tasks")
    assert redis_client.pttl(session) <= before <= 12 * 3600 * 1000
    redis_client.delete(session)
    assert dashboard.client.get("/tasks").status_code == 302


def test_other_roles_in_the_settings_end_sessions(
    dashboard: Browser, provider: RogueProvider, open_browser: Callable[..., Browser]
) -> None:
    sign_in(dashboard, provider)
    cookie = dashboard.client.get_cookie("firmq_dashboard")
    assert cookie is not None
    after = open_browser(**settings(provider, oidc_roles={"queue-admins": "viewer"}))
    after.client.set_cookie("firmq_dashboard", cookie.value)
    assert after.client.get("/tasks").status_code == 302


# --- settings ---


@pytest.mark.parametrize(
    ("environment", "mistake"),
    [
        ({"OIDC_ISSUER": "https://x.example"}, "OIDC_CLIENT_ID, OIDC_ROLES, DASHBOARD_URL"),
        ({"OIDC_ISSUER": "http://x.example"}, "OIDC_ISSUER"),
        ({"OIDC_SCOPES": "email"}, "openid"),
        ({"OIDC_ROLES": "staff:king"}, "OIDC_ROLES"),
    ],
)
def test_mistakes_are_named_at_the_start(environment: dict[str, str], mistake: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(mistake)):
        load(environment)


def test_without_users_of_the_settings_no_password_is_asked_for(dashboard: Browser) -> None:
    page = dashboard.text("/sign-in")
    assert "company account" in page
    assert "Password" not in page
