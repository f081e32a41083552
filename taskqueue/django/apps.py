"""The application for INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig


class TaskQueueConfig(AppConfig):
    """Brings the management commands and the page of the admin."""

    name = "taskqueue.django"
    label = "taskqueue"
    verbose_name = "Task Queue"
    default_auto_field = "django.db.models.BigAutoField"
