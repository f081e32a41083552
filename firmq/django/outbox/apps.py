"""The application for INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig


class OutboxConfig(AppConfig):
    """Brings the table of the outbox, and the command of its relay."""

    name = "firmq.django.outbox"
    label = "firmq_outbox"
    verbose_name = "Firmq outbox"
    default_auto_field = "django.db.models.BigAutoField"
