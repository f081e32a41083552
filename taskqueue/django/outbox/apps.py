"""The application for INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig


class OutboxConfig(AppConfig):
    """Brings the table of the outbox, and the command of its relay."""

    name = "taskqueue.django.outbox"
    label = "taskqueue_outbox"
    verbose_name = "Task Queue outbox"
    default_auto_field = "django.db.models.BigAutoField"
