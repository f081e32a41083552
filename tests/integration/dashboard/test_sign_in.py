"""Who gets in, and what each role may do."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from types import SimpleNamespace

import pytest
from redis.exceptions import ConnectionError
from werkzeug.security import generate_password_hash
from werkzeug.test import create_environ, run_wsgi_app

from firmq.dashboard.auth import login_throttle
from firmq.dashboard.auth.login_throttle import LoginThrottle
from firmq.dashboard.auth.security import safe_target
from firmq.dashboard.auth.users import Users
from firmq.shared.errors import SettingsError
from tests.integration.dashboard.conftest import Browser, bury
from tests.support.features import rows
from tests.support.harness import System, wait_until

HASH = generate_password_hash("correct horse", "pbkdf2:sha256:1000")
USERS = ",".join(
    f"{name}:{role}:{HASH}" for name, role in [("vera", "viewer"), ("otto", "operator"), ("anna", "admin")]
)


def _sign_in(browser: Browser, name: str, password: str = "correct horse") -> int:
    return browser.post("/sign-in", follow=False, name=name, password=password, next="/tasks").status_code


@pytest.fixture
def guarded(open_browser: Callable[..., Browser]) -> Browser:
    return open_browser(dashboard_users=USERS)


def test_every_page_requires_a_sign_in(guarded: Browser) -> None:
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


@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "Via"])
def test_metrics_through_a_proxy_need_a_sign_in(guarded: Browser, header: str) -> None:
    assert guarded.client.get("/metrics").status_code == 200
    guarded.headers = {header: "203.0.113.9"}
    answer = guarded.get("/metrics")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/sign-in?next=/metrics")
    assert "firmq_dashboard" not in answer.text
    assert guarded.get("/health/ready").status_code == 200
    _sign_in(guarded, "vera")
    assert "firmq_dashboard" in guarded.text("/metrics")


def test_metrics_through_a_proxy_are_open_without_sign_in(open_browser: Callable[..., Browser]) -> None:
    assert open_browser().client.get("/metrics", headers={"X-Forwarded-For": "203.0.113.9"}).status_code == 200


def test_readiness_hides_its_reason_where_a_sign_in_is_needed(
    open_browser: Callable[..., Browser], guarded: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("secret-host:6379 refused")

    monkeypatch.setattr("redis.Redis.ping", refuse)
    told = guarded.client.get("/health/ready")
    assert (told.status_code, told.json) == (503, {"status": "unavailable"})
    assert "secret-host" in open_browser().client.get("/health/ready").text


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


def test_cookies_are_secure_behind_https(open_browser: Callable[..., Browser]) -> None:
    browser = open_browser(dashboard_users=USERS, dashboard_https=True)
    assert "Secure" in browser.client.get("/sign-in").headers["Set-Cookie"]


def test_guessing_is_slowed_down(guarded: Browser) -> None:
    assert [_sign_in(guarded, "vera", "wrong") for _ in range(6)] == [401] * 5 + [429]
    assert _sign_in(guarded, "vera") == 429
    assert _sign_in(guarded, "otto") == 302


def _another(browser: Browser) -> Browser:
    """Somebody else's, in front of the same dashboard."""
    return Browser(browser.app, browser.app.test_client())


def _hold_looks(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Event]:
    """From now on a look at a password lasts until the event; the list has whose are looked at."""
    looked: list[str] = []
    over = Event()

    def look(self: Users, name: str, password: str) -> None:
        looked.append(name)
        assert over.wait(30)

    monkeypatch.setattr(Users, "check", look)
    return looked, over


def test_parallel_guesses_are_counted_before_they_are_checked(
    guarded: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [_sign_in(guarded, "vera", "wrong") for _ in range(4)] == [401] * 4
    looked, over = _hold_looks(monkeypatch)
    fifth = Thread(target=_sign_in, args=(_another(guarded), "vera", "wrong"))
    fifth.start()
    wait_until(lambda: looked, "the fifth is looked at")
    assert _sign_in(guarded, "vera", "wrong") == 429
    over.set()
    fifth.join(30)
    assert looked == ["vera"]


def test_at_most_two_passwords_are_checked_at_a_time(guarded: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoginThrottle, "PATIENCE", 0.01)
    looked, over = _hold_looks(monkeypatch)
    two = [Thread(target=_sign_in, args=(_another(guarded), name)) for name in ("a", "b")]
    for each in two:
        each.start()
    wait_until(lambda: len(looked) == 2, "two are looked at")
    answer = guarded.post("/sign-in", follow=False, name="c", password="wrong")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert 'name="password"' in answer.text
    over.set()
    for each in two:
        each.join(30)
    assert _sign_in(guarded, "c", "wrong") == 401


def test_guessing_under_other_names_is_slowed_down(guarded: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(login_throttle, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(LoginThrottle, "OF_UNKNOWN", 3)
    assert [_sign_in(guarded, f"n{n}", "wrong") for n in range(4)] == [401] * 3 + [429]
    now[0] += LoginThrottle.UNKNOWN_WINDOW
    assert [_sign_in(_another(guarded), name) for name in ("vera", "otto", "anna") * 2] == [302] * 6
    assert [_sign_in(guarded, f"n{n}", "wrong") for n in range(4)] == [401] * 3 + [429]
    answer = guarded.post("/sign-in", follow=False, name="vera", password="correct horse")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "60")


def test_guessing_by_others_does_not_lock_out_a_known_browser(
    guarded: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoginThrottle, "OF_UNKNOWN", 7)
    assert _sign_in(guarded, "vera") == 302
    guarded.post("/sign-out")
    stranger = _another(guarded)
    assert [_sign_in(stranger, "vera", "wrong") for _ in range(6)] == [401] * 5 + [429]
    assert [_sign_in(stranger, f"n{n}", "wrong") for n in range(3)] == [401] * 2 + [429]
    assert _sign_in(stranger, "vera") == 429
    assert _sign_in(guarded, "vera") == 302
    assert _sign_in(guarded, "otto") == 429, "here nobody signed in as otto"


def test_who_signed_in_before_in_this_browser_is_slowed_down_too(guarded: Browser) -> None:
    assert _sign_in(guarded, "vera") == 302
    guarded.post("/sign-out")
    assert [_sign_in(guarded, "vera", "wrong") for _ in range(6)] == [401] * 5 + [429]
    assert _sign_in(guarded, "vera") == 429


def test_a_new_password_forgets_known_browsers(open_browser: Callable[..., Browser]) -> None:
    browser = open_browser(dashboard_users=USERS)
    _sign_in(browser, "vera")
    browser.post("/sign-out")
    cookie = browser.client.get_cookie("firmq_dashboard")
    assert cookie
    assert cookie.http_only
    for password, status in (("correct horse", 302), ("another", 429)):
        users = f"vera:viewer:{HASH if status == 302 else generate_password_hash(password, 'pbkdf2:sha256:1000')}"
        later = open_browser(dashboard_users=users)
        for _ in range(6):
            _sign_in(_another(later), "vera", "wrong")
        later.client.set_cookie("firmq_dashboard", cookie.value)
        assert _sign_in(later, "vera", password) == status


ROLES = [
    ("/tasks/{}/retry", "operator"),
    ("/tasks/{}/retry-with", "operator"),
    ("/tasks/{}/run-now", "operator"),
    ("/tasks/{}/cancel", "operator"),
    ("/tasks/{}/delete", "admin"),
    ("/queues/low/pause", "operator"),
    ("/queues/low/resume", "operator"),
    ("/types/noop/pause", "operator"),
    ("/types/noop/resume", "operator"),
    ("/limits/set", "operator"),
    ("/limits/type:x/remove", "operator"),
    ("/workers/x/drain", "operator"),
    ("/schedules/x/pause", "operator"),
    ("/schedules/x/resume", "operator"),
    ("/schedules/x/run", "operator"),
    ("/schedules/x/edit", "admin"),
    ("/schedules/+create", "admin"),
    ("/tasks/submit", "operator"),
    ("/schedules/x/delete", "admin"),
    ("/locks/x/unlock", "admin"),
    ("/locks/step-down", "admin"),
    *rows("ROLES"),
]
RANK = {"viewer": 1, "operator": 2, "admin": 3}


@pytest.mark.parametrize(("name", "role"), [("vera", "viewer"), ("otto", "operator"), ("anna", "admin")])
def test_each_role_has_its_permissions_only(guarded: Browser, system: System, name: str, role: str) -> None:
    [dead] = bury(system, ["no"])
    assert _sign_in(guarded, name) == 302
    for path, needed in ROLES:
        answer = guarded.post(path.format(dead), scope="all", verb="retry", rate="1", data="null")
        assert (answer.status_code == 403) == (RANK[role] < RANK[needed]), (path, answer.status)


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
    cookie = browser.client.get_cookie("firmq_dashboard")
    assert cookie
    changed.client.set_cookie("firmq_dashboard", cookie.value)
    assert changed.client.get("/").status_code == 302


def test_a_forged_session_is_refused(guarded: Browser) -> None:
    guarded.client.set_cookie("firmq_dashboard", "eyJuYW1lIjoiYW5uYSJ9.aaaa.bbbb")
    assert guarded.client.get("/").status_code == 302


def test_a_trusted_proxy_names_who_it_is(open_browser: Callable[..., Browser]) -> None:
    secret = "known-to-the-proxy-of-this-test"
    browser = open_browser(dashboard_proxy_user_header="X-User", dashboard_proxy_secret=secret, dashboard_users=USERS)
    eve, anna = ({"X-User": name, "X-Proxy-Secret": secret} for name in ("eve", "anna"))
    assert "eve" in browser.client.get("/", headers=eve).text
    assert 'action="/queues' not in browser.client.get("/queues", headers=eve).text
    assert 'action="/queues' in browser.client.get("/queues", headers=anna).text
    stranger = browser.client.get("/", headers=anna, environ_base={"REMOTE_ADDR": "203.0.113.9"})
    assert stranger.status_code == 302


def test_a_rebound_host_name_is_refused(browser: Browser) -> None:
    for host in ("evil.example", "[", "[::1::1]", "[::1", "", "a b"):
        # Not by the client, which cannot read all of these itself.
        _, status, _ = run_wsgi_app(browser.app, {**create_environ("/"), "HTTP_HOST": host})
        assert status == "403 FORBIDDEN", host
    for host in ("localhost:5001", "127.0.0.1:5001", "[::1]:5001"):
        assert browser.client.get("/", headers={"Host": host}).status_code == 200


def test_in_a_container_neither_unless_a_sign_in_is_needed(open_browser: Callable[..., Browser]) -> None:
    open_to_all = open_browser(bind_host="0.0.0.0", allow_anonymous=True, allowed_hosts=("queue.example",))
    assert open_to_all.client.get("/", headers={"Host": "evil.example"}).status_code == 403
    for host in ("localhost:5001", "192.0.2.1", "dashboard:5001", "queue.example"):
        assert open_to_all.client.get("/", headers={"Host": host}).status_code == 200, host
    guarded = open_browser(bind_host="0.0.0.0", dashboard_users=USERS)
    assert guarded.client.get("/sign-in", headers={"Host": "any.example"}).status_code == 200


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
