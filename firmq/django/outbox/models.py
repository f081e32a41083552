"""The table of the outbox, the same as for SQLAlchemy: `firmq outbox` can relay it, too."""

from __future__ import annotations

from datetime import datetime

from django.db import models

from firmq.outbox.rows import TABLE, RowState


class OutboxRow(models.Model):
    """A task that is to be submitted."""

    position: models.BigAutoField[int, int] = models.BigAutoField(primary_key=True)
    task_id: models.CharField[str, str] = models.CharField(max_length=26, unique=True)
    type: models.CharField[str, str] = models.CharField(max_length=100)
    task: models.TextField[str, str] = models.TextField()
    traceparent: models.CharField[str | None, str | None] = models.CharField(
        max_length=55, null=True
    )  # the same table as for SQLAlchemy
    created_at: models.DateTimeField[datetime, datetime] = models.DateTimeField()
    state: models.CharField[str, str] = models.CharField(
        max_length=8, default=RowState.WAITING.value, db_default=RowState.WAITING.value
    )
    error: models.TextField[str | None, str | None] = models.TextField(null=True)

    class Meta:
        db_table = TABLE
        verbose_name = "outbox row"
        indexes = (models.Index(fields=("state", "position"), name=f"{TABLE}_in_order"),)

    def __str__(self) -> str:
        return f"{self.type} {self.task_id}"
