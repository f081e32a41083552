"""The interface of tracing for stores; `firmq.shared.observability.tracing.Tracing` does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from firmq.shared.domain.task import NewTask
    from firmq.shared.domain.traceparent import Subject


class Spans(Protocol):
    """Records spans around steps of the stores."""

    @property
    def on(self) -> bool:
        """Returns whether spans are recorded at all."""
        ...

    def firing(self, task: NewTask, schedule: str) -> AbstractContextManager[tuple[NewTask, Callable[[str], None]]]:
        """Records the firing of a schedule; yields the task with its trace, and a function that records the outcome."""
        ...

    def replaying(self, look_up: Callable[[], Sequence[tuple[Subject, str | None]]]) -> AbstractContextManager[str]:
        """Records a retry of dead letters; yields their new traceparent or ""."""
        ...
