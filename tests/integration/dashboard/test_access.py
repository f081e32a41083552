"""Who gets in, asked of the process that serves: what stands between it and the app may change what the app sees."""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import unescape
from urllib.parse import urlencode

import pytest
from werkzeug.security import generate_password_hash

from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import text
from tests.support.harness import System, free_port, wait_until
from tests.support.keys import keys

HASH = generate_password_hash("correct horse", "pbkdf2:sha256:1000")
USERS = f"vera:viewer:{HASH},anna:admin:{HASH}"
SECRET = "known-to-the-proxy-of-this-test"


@dataclass(frozen=True)
class Site:
    """A dashboard as it ships, asked without a client that knows anything."""

    port: int

    def ask(self, path: str, method: str = "GET", body: str = "", **headers: str) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body or None, {k.replace("_", "-"): v for k, v in headers.items()})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def alive(self) -> bool:
        try:
            return self.ask("/health/live")[0] == 200
        except OSError:
            return False

    def post(self, path: str, cookie: str, token: str, **form: str) -> tuple[int, dict[str, str], str]:
        kind = "application/x-www-form-urlencoded"
        return self.ask(path, "POST", urlencode({"csrf": token, **form}), Cookie=cookie, Content_Type=kind)

    def token(self, path: str, cookie: str) -> tuple[str, str]:
        """The token in the forms of a page, and the cookie that goes with it."""
        _, headers, page = self.ask(path, Cookie=cookie)
        found = re.search(r'name="csrf" value="([^"]+)"', page)
        assert found
        return unescape(found[1]), _cookie(headers)

    def sign_in(self, name: str) -> str:
        """The cookie of a new session."""
        token, cookie = self.token("/sign-in", "")
        status, headers, _ = self.post("/sign-in", cookie, token, name=name, password="correct horse")
        assert status == 302
        return _cookie(headers)


def _cookie(headers: dict[str, str]) -> str:
    found = re.search(r"firmq_dashboard=[^;]+", headers["Set-Cookie"])
    assert found
    return found[0]


Start = Callable[..., Site]


@pytest.fixture
def start(system: System) -> Start:
    """Starts a dashboard with these settings."""

    def started(**environment: str) -> Site:
        site = Site(free_port())
        system.start("dashboard", DASHBOARD_PORT=str(site.port), **environment)
        wait_until(site.alive, "the dashboard answers")
        return site

    return started


def test_the_server_requires_a_sign_in_for_metrics_through_a_proxy(start: Start) -> None:
    site = start(DASHBOARD_USERS=USERS)
    assert site.ask("/metrics")[0] == 200
    for header in ("X_Forwarded_For", "X_Forwarded_Host", "X_Forwarded_Proto", "X_Real_IP", "Forwarded", "Via"):
        status, headers, page = site.ask("/metrics", **{header: "203.0.113.9"})
        assert (status, headers.get("Location")) == (302, "/sign-in?next=/metrics"), header
        assert "firmq_dashboard" not in page
    assert site.ask("/metrics", Host="tasks.example.com")[0] == 302, "the public name that an ingress passes on"
    assert site.ask("/metrics", X_Forwarded_For="203.0.113.9", Cookie=site.sign_in("vera"))[0] == 200


def test_readiness_through_a_proxy_does_not_say_why_redis_is_away(start: Start, redis_server: EmbeddedRedis) -> None:
    site = start(DASHBOARD_USERS=USERS)
    redis_server.stop()
    try:
        status, _, answer = site.ask("/health/ready", X_Forwarded_For="203.0.113.9")
    finally:
        redis_server.start()
    assert (status, answer.strip()) == (503, '{"status":"unavailable"}')


def test_a_copied_cookie_is_refused_after_the_sign_out(start: Start) -> None:
    site = start(DASHBOARD_USERS=USERS)
    copied, other = site.sign_in("vera"), site.sign_in("vera")
    token, cookie = site.token("/tasks", copied)
    assert site.ask("/tasks", Cookie=copied)[0] == 200
    assert site.post("/sign-out", cookie, token)[0] == 302
    for each in (copied, cookie):
        status, headers, _ = site.ask("/tasks", Cookie=each)
        assert (status, headers["Location"]) == (302, "/sign-in?next=/tasks")
    assert site.ask("/tasks", Cookie=other)[0] == 200, "the same user's session in another browser is another one"


def test_signing_in_again_ends_the_session_before(start: Start) -> None:
    site = start(DASHBOARD_USERS=USERS)
    before = site.sign_in("vera")
    token, cookie = site.token("/tasks", before)
    status, headers, _ = site.post("/sign-in", cookie, token, name="anna", password="correct horse")
    assert status == 302
    assert site.ask("/tasks", Cookie=before)[0] == 302
    assert site.ask("/tasks", Cookie=_cookie(headers))[0] == 200


@pytest.mark.parametrize(
    "changed", [f"vera:admin:{HASH}", f"vera:viewer:{generate_password_hash('other', 'pbkdf2:sha256:1000')}"]
)
def test_a_new_role_or_password_ends_earlier_sessions(start: Start, changed: str) -> None:
    cookie = start(DASHBOARD_USERS=USERS).sign_in("vera")
    assert start(DASHBOARD_USERS=USERS).ask("/tasks", Cookie=cookie)[0] == 200, "every dashboard takes it"
    assert start(DASHBOARD_USERS=changed).ask("/tasks", Cookie=cookie)[0] == 302
    assert start(DASHBOARD_USERS=USERS).ask("/tasks", Cookie=cookie)[0] == 302


def test_redis_holds_hashes_of_session_ids_that_end_by_themselves(start: Start, system: System) -> None:
    cookie = start(DASHBOARD_USERS=USERS, DASHBOARD_SESSION="600").sign_in("vera")
    [key] = map(text, system.redis.keys(keys.dashboard_session("*")))
    assert re.fullmatch(re.escape(keys.dashboard_session("")) + "[0-9a-f]{64}", key)
    assert key.rpartition(":")[2] not in cookie
    assert 0 < system.redis.pttl(key) <= 600_000


def test_without_redis_a_session_is_neither_taken_nor_ended(start: Start, redis_server: EmbeddedRedis) -> None:
    site = start(DASHBOARD_USERS=USERS)
    cookie = site.sign_in("vera")
    redis_server.stop()
    try:
        status, headers, page = site.ask("/tasks", Cookie=cookie)
    finally:
        redis_server.start()
    assert (status, headers["Retry-After"]) == (503, "2")
    assert "vera" not in page
    wait_until(lambda: site.ask("/tasks", Cookie=cookie)[0] == 200, "the session goes on")


def test_a_process_without_the_proxy_secret_is_refused(start: Start) -> None:
    site = start(DASHBOARD_USERS=USERS, DASHBOARD_PROXY_USER_HEADER="X-User", DASHBOARD_PROXY_SECRET=SECRET)
    assert site.ask("/tasks", X_User="anna")[0] == 302
    assert site.ask("/tasks", X_User="anna", X_Proxy_Secret="wrong")[0] == 302
    status, _, page = site.ask("/tasks", X_User="anna", X_Proxy_Secret=SECRET)
    assert status == 200
    assert "anna" in page


def test_a_proxy_header_without_a_secret_does_not_start(system: System) -> None:
    process = system.start("dashboard", DASHBOARD_PROXY_USER_HEADER="X-User", DASHBOARD_PORT=str(free_port()))
    assert process.wait(60) == 2
    assert "DASHBOARD_PROXY_USER_HEADER needs DASHBOARD_PROXY_SECRET" in system.logs()
