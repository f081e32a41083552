"""The entry of Django's admin; it has no table."""

from __future__ import annotations

from django.db import models


class QueuedTask(models.Model):
    """A task in Firmq. Gives the admin its entry, and the permission `firmq.view_queuedtask`."""

    class Meta:
        managed = False
        default_permissions = ("view",)
        verbose_name = "task"
