"""`manage.py firmq_worker`."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from firmq.django import part


class Command(BaseCommand):
    """Becomes a worker."""

    help = "Starts a worker, which runs the tasks of this project."

    def handle(self, *args: Any, **options: Any) -> None:
        """Replaces this process, so that signals reach the worker."""
        part.start("worker")
