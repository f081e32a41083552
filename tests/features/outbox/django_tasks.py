"""A task of Django that these tests submit."""

from __future__ import annotations

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task  # type: ignore[no-redef]


@task
def receipt(order: int) -> None: ...
