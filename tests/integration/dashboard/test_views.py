"""Saved views: of one user or shared, bounded in number, and removed when nobody used them for long."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from taskqueue.shared.domain.clock import FakeClock
from taskqueue.shared.errors import CorruptKey
from taskqueue.shared.redis.scripts import Scripts
from taskqueue.shared.stores.audit import Audit
from taskqueue.shared.stores.saved_views import KEPT, MOST_OF_USER, SavedViews
from tests.integration.dashboard.conftest import Browser
from tests.support.harness import System
from tests.support.keys import keys


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def views(system: System, clock: FakeClock) -> SavedViews:
    return SavedViews(Scripts(system.redis, clock))


QUERY: dict[str, Any] = {"search": "data.customer:42", "status": "failed"}


def test_a_view_is_saved_opened_and_deleted(browser: Browser, system: System) -> None:
    page = browser.post("/views/save", name="Customer 42", **QUERY).text
    assert "The view Customer 42 is saved." in page
    found = re.search(r'href="(/views/\w+)" aria-current="page"', page)
    assert found
    assert browser.get(found[1]).location == "/tasks?status=failed&search=data.customer:42"
    assert "is deleted" in browser.post(f"{found[1]}/delete").text
    assert browser.get(found[1]).status_code == 404
    assert [each.what for each in Audit(system.redis).page(9)[0]] == ["deleted view", "saved view"]


@pytest.mark.parametrize(
    ("name", "query"), [("", QUERY), ("x" * 61, QUERY), ("a\nb", QUERY), ("a", {}), ("a", {"search": "colour:red"})]
)
def test_a_view_that_cannot_be_is_refused(
    browser: Browser, views: SavedViews, name: str, query: dict[str, Any]
) -> None:
    form: dict[str, object] = {"name": name, **query}
    assert browser.post("/views/save", True, **form).status_code == 400
    assert views.all() == []


def test_views_belong_to_users(open_browser: Callable[..., Browser], views: SavedViews) -> None:
    own = views.save("own", QUERY, "ann", shared=False)
    shared = views.save("ours", QUERY, "ann", shared=True)
    behind_proxy = open_browser(
        dashboard_proxy_user_header="X-User", dashboard_proxy_role="viewer", dashboard_proxy_secret="s" * 32
    )
    behind_proxy.headers["X-Proxy-Secret"] = "s" * 32
    behind_proxy.headers["X-User"] = "bob"
    page = behind_proxy.text("/tasks")
    assert f"/views/{shared.id}" in page
    assert f"/views/{own.id}" not in page
    assert f"/views/{shared.id}/delete" not in page
    assert behind_proxy.get(f"/views/{own.id}").status_code == 404
    assert behind_proxy.post(f"/views/{shared.id}/delete").status_code == 403
    assert behind_proxy.post("/views/save", name="x", shared="yes", **QUERY).status_code == 403
    assert behind_proxy.post("/views/save", name="mine", **QUERY).status_code == 200
    behind_proxy.headers["X-User"] = "ann"
    assert behind_proxy.post(f"/views/{own.id}/delete").status_code == 200
    assert {each.name for each in views.all()} == {"mine", "ours"}


def test_an_admin_deletes_the_views_of_others(browser: Browser, views: SavedViews) -> None:
    shared = views.save("ours", QUERY, "ann", shared=True)
    assert f"/views/{shared.id}/delete" in browser.text("/tasks")
    assert browser.post(f"/views/{shared.id}/delete").status_code == 200
    assert views.all() == []


def test_the_number_is_bounded_and_a_name_is_saved_again(views: SavedViews) -> None:
    for number in range(MOST_OF_USER):
        views.save(f"view {number}", QUERY, "ann", shared=False)
    with pytest.raises(ValueError, match="delete one first"):
        views.save("one more", QUERY, "ann", shared=False)
    views.save("view 3", {"search": "type:a"}, "ann", shared=True)
    views.save("one more", QUERY, "bob", shared=False)
    assert len(views.all()) == MOST_OF_USER + 1
    with pytest.raises(ValueError, match="filter"):
        views.save("long", {"search": "x" * 3000}, "bob", shared=False)


def test_views_that_nobody_uses_are_removed(views: SavedViews, clock: FakeClock, system: System) -> None:
    used, unused = (views.save(name, QUERY, "ann", shared=False) for name in ("used", "unused"))
    clock.advance(KEPT - timedelta(days=1))
    views.use(used)
    clock.advance(timedelta(days=2))
    [left] = views.all()
    assert replace(left, used_at=0) == replace(used, used_at=0)
    assert views.get(unused.id) is None
    views.save("new", QUERY, "bob", shared=False)
    assert system.redis.hlen(keys.SAVED_VIEWS) == 2


def test_corrupt_views_are_left_out(views: SavedViews, system: System) -> None:
    views.save("good", QUERY, "ann", shared=False)
    system.redis.hset(keys.SAVED_VIEWS, mapping={"a": "x", "b": "{}", "c": json.dumps({"id": 1})})
    assert [each.name for each in views.all()] == ["good"]
    system.redis.set(keys.SAVED_VIEWS, "no hash")
    with pytest.raises(CorruptKey):
        views.all()
    assert views.all() == []
