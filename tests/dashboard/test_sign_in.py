"""Who gets in, and what each role may do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from werkzeug.security import generate_password_hash
from werkzeug.test import create_environ, run_wsgi_app

from dashboard.security import safe_target
from dashboard.users import Users
from shared.errors import SettingsError
from tests.dashboard.conftest import Browser, bury
from tests.harness import System

HASH = generate_password_hash("correct horse", "pbkdf2:sha256:1000")
USERS = ",".join(
    f"{name}:{role}:{HASH}" for name, role in [("vera", "viewer"), ("otto", "operator"), ("anna", "admin")]
)


def _sign_in(browser: Browser, name: str, password: str = "correct horse") -> int:
    return browser.post("/sign-in", follow=False, name=name, password=password, next="/tasks").status_code


@pytest.fixture
def guarded(open_browser: Callable[..., Browser]) -> Browser:
    return open_browser(dashboard_users=USERS)


def test_nobody_sees_anything_without_having_signed_in(guarded: Browser) -> None:
    for rule in guarded.app.url_map.iter_rules():
        if (
            "GET" in (rule.methods or ())
            and not rule.arguments
            and not rule.rule.startswith(("/health", "/metrics", "/sign-in"))
        ):
            answer = guarded.client.get(rule.rule)
            assert answer.status_code == 302, rule.rule
            assert "/sign-in" in answer.headers["Location"]
    assert guarded.client.get("/health/ready").status_code == 200


def test_a_live_part_is_sent_to_the_sign_in_page(guarded: Browser) -> None:
    answer = guarded.client.get("/", headers={"HX-Request": "true"})
    assert (answer.status_code, answer.headers["HX-Redirect"]) == (401, "/sign-in")


def test_the_right_password_lets_in_and_leads_on(guarded: Browser) -> None:
    assert _sign_in(guarded, "vera", "wrong") == 401
    assert _sign_in(guarded, "nobody") == 401
    answer = guarded.post("/sign-in", follow=False, name="vera", password="correct horse", next="/tasks")
    assert answer.headers["Location"] == "/tasks"
    assert "HttpOnly" in answer.headers["Set-Cookie"]
    assert "SameSite=Lax" in answer.headers["Set-Cookie"]
    assert "vera" in guarded.text("/")
    guarded.post("/sign-out")
    assert guarded.client.get("/").status_code == 302


def test_cookies_say_secure_behind_https(open_browser: Callable[..., Browser]) -> None:
    browser = open_browser(dashboard_users=USERS, dashboard_https=True)
    assert "Secure" in browser.client.get("/sign-in").headers["Set-Cookie"]


def test_guessing_is_slowed_down(guarded: Browser) -> None:
    assert [_sign_in(guarded, "vera", "wrong") for _ in range(6)] == [401] * 5 + [429]
    assert _sign_in(guarded, "vera") == 429
    assert _sign_in(guarded, "otto") == 302


ROLES = [
    ("/tasks/{}/retry", "operator"),
    ("/tasks/{}/retry-with", "operator"),
    ("/tasks/{}/run-now", "operator"),
    ("/tasks/{}/cancel", "operator"),
    ("/tasks/{}/delete", "admin"),
    ("/queues/low/pause", "operator"),
    ("/queues/low/resume", "operator"),
    ("/limits/set", "operator"),
    ("/limits/type:x/remove", "operator"),
    ("/bulk/review", "operator"),
    ("/bulk", "operator"),
    ("/bulk/x/pause", "operator"),
    ("/workers/x/drain", "operator"),
    ("/schedules/x/pause", "operator"),
    ("/schedules/x/resume", "operator"),
    ("/schedules/x/run", "operator"),
    ("/schedules/x/edit", "admin"),
    ("/schedules/x/delete", "admin"),
    ("/locks/x/unlock", "admin"),
    ("/locks/step-down", "admin"),
]
RANK = {"viewer": 1, "operator": 2, "admin": 3}


@pytest.mark.parametrize(("name", "role"), [("vera", "viewer"), ("otto", "operator"), ("anna", "admin")])
def test_each_role_may_do_its_part_and_no_more(guarded: Browser, system: System, name: str, role: str) -> None:
    [dead] = bury(system, ["no"])
    assert _sign_in(guarded, name) == 302
    for path, needed in ROLES:
        answer = guarded.post(path.format(dead), scope="all", verb="retry", rate="1", data="null")
        assert (answer.status_code == 403) == (RANK[role] < RANK[needed]), (path, answer.status)


def test_bulk_deletion_is_for_admins(guarded: Browser, system: System) -> None:
    bury(system, ["no"])
    _sign_in(guarded, "otto")
    assert guarded.post("/bulk", scope="all", verb="delete", rate="1").status_code == 403
    assert "Delete all" not in guarded.text("/dead-letters")


def test_a_viewer_is_shown_no_buttons(guarded: Browser, system: System) -> None:
    [dead] = bury(system, ["no"])
    _sign_in(guarded, "vera")
    for path in (f"/tasks/{dead}", "/queues", "/dead-letters"):
        page = guarded.text(path)
        assert page.count('method="post"') == page.count('action="/sign-out"')


def test_the_session_ends_when_the_password_changes(open_browser: Callable[..., Browser]) -> None:
    browser = open_browser(dashboard_users=USERS)
    _sign_in(browser, "vera")
    changed = open_browser(dashboard_users=f"vera:viewer:{generate_password_hash('other', 'pbkdf2:sha256:1000')}")
    cookie = browser.client.get_cookie("taskqueue_dashboard")
    assert cookie
    changed.client.set_cookie("taskqueue_dashboard", cookie.value)
    assert changed.client.get("/").status_code == 302


def test_a_forged_session_is_no_session(guarded: Browser) -> None:
    guarded.client.set_cookie("taskqueue_dashboard", "eyJuYW1lIjoiYW5uYSJ9.aaaa.bbbb")
    assert guarded.client.get("/").status_code == 302


def test_a_trusted_proxy_names_who_it_is(open_browser: Callable[..., Browser]) -> None:
    browser = open_browser(dashboard_proxy_user_header="X-User", dashboard_users=USERS)
    assert "eve" in browser.client.get("/", headers={"X-User": "eve"}).text
    assert 'action="/queues' not in browser.client.get("/queues", headers={"X-User": "eve"}).text
    assert 'action="/queues' in browser.client.get("/queues", headers={"X-User": "anna"}).text
    stranger = browser.client.get("/", headers={"X-User": "anna"}, environ_base={"REMOTE_ADDR": "203.0.113.9"})
    assert stranger.status_code == 302


def test_a_name_that_was_made_to_point_here_does_not_get_in(browser: Browser) -> None:
    for host in ("evil.example", "[", "[::1::1]", "[::1", "", "a b"):
        # Not by the client, which cannot read all of these itself.
        _, status, _ = run_wsgi_app(browser.app, {**create_environ("/"), "HTTP_HOST": host})
        assert status == "403 FORBIDDEN", host
    for host in ("localhost:5001", "127.0.0.1:5001", "[::1]:5001"):
        assert browser.client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "path",
    ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "/a\r\nb", "", "//[", "http://["],
)
def test_signing_in_leads_nowhere_else(path: str) -> None:
    assert safe_target(path) == "/"


@pytest.mark.parametrize(
    "line",
    [
        "vera",
        "vera:viewer",
        "vera:king:scrypt:1$a$b",
        "vera:viewer:plaintext",
        ":viewer:scrypt:1$a$b",
        "v:viewer:md5$a$b",
    ],
)
def test_a_line_that_is_no_user_is_told(line: str) -> None:
    with pytest.raises(SettingsError):
        Users([line])
