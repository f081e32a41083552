"""The application for INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig


class FirmqConfig(AppConfig):
    """Brings the management commands and the page of the admin."""

    name = "firmq.django"
    label = "firmq"
    verbose_name = "Firmq"
    default_auto_field = "django.db.models.BigAutoField"
