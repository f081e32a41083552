"""The admin has a page with the newest tasks, for staff that may see it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.client.conftest import Running


@pytest.fixture
def browser(running: Running) -> Iterator[Any]:
    """A signed-in superuser."""
    from django.contrib.auth.models import User
    from django.test import Client

    user = User.objects.create_superuser("ann")
    client = Client()
    client.force_login(user)
    yield client
    user.delete()


def test_the_admin_shows_the_newest_tasks_and_leads_to_the_dashboard(browser: Any) -> None:
    from tests.support.django_project.tasks import add

    task_id = add.enqueue(1).id
    assert "/admin/firmq/queuedtask/" in browser.get("/admin/").content.decode()
    page = browser.get("/admin/firmq/queuedtask/").content.decode()
    assert f'<a href="http://dashboard.example/tasks/{task_id}">{task_id}</a>' in page
    assert "tests.support.django_project.tasks.add" in page
    assert "<td>normal</td>" in page, "its queue"


def test_the_page_needs_a_permission(browser: Any) -> None:
    from django.contrib.auth.models import Permission, User

    user = User.objects.create_user("bob", is_staff=True)
    browser.force_login(user)
    try:
        assert browser.get("/admin/firmq/queuedtask/").status_code == 403
        user.user_permissions.add(Permission.objects.get(codename="view_queuedtask"))
        assert browser.get("/admin/firmq/queuedtask/").status_code == 200
        assert browser.get("/admin/firmq/queuedtask/1/change/").status_code == 404
    finally:
        user.delete()


def test_a_gateway_that_cannot_be_reached_is_an_error_on_the_page(
    browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRMQ_URL", "http://127.0.0.1:1")
    answer = browser.get("/admin/firmq/queuedtask/")
    assert answer.status_code == 200
    assert "127.0.0.1:1" in answer.content.decode()
