"""`manage.py firmq_housekeeper`."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from firmq.django import part


class Command(BaseCommand):
    """Becomes a housekeeper."""

    help = "Starts a housekeeper, which retries tasks and keeps schedules."

    def handle(self, *args: Any, **options: Any) -> None:
        """Replaces this process, so that signals reach the housekeeper."""
        part.start("housekeeper")
