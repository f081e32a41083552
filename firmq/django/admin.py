"""The page of Django's admin: the newest tasks of each backend, and a link to the dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from firmq import ClientError
from firmq.django.backend import FirmqBackend
from firmq.django.framework import task_backends
from firmq.django.models import QueuedTask

SHOWN = 50
"""Tasks of a backend on the page."""


@admin.register(QueuedTask)
class QueuedTaskAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # Django 5.2 has no parameter
    """Shows tasks to staff with the permission `view`; actions on them are in the dashboard."""

    def get_urls(self) -> list[URLPattern]:
        """Returns the one page: there is no table whose rows could be edited."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        return [path("", self.admin_site.admin_view(self.changelist_view), name=name)]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Returns False: programs submit tasks."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Returns the page."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": "Tasks",
            "backends": [_about(backend) for backend in _backends()],
            "opts": self.opts,
        }
        return TemplateResponse(request, "admin/firmq/tasks.html", context)


def _backends() -> Iterator[FirmqBackend]:
    return (each for each in task_backends.all() if isinstance(each, FirmqBackend))


def _about(backend: FirmqBackend) -> dict[str, Any]:
    """Returns a backend's data for the page."""
    try:
        tasks, problem = backend.newest_tasks(SHOWN), ""
    except (ClientError, NotImplementedError) as error:  # the second one: a backend without a gateway has no lists
        tasks, problem = [], str(error)
    return {"alias": backend.alias, "dashboard": backend.dashboard_url, "tasks": tasks, "problem": problem}
