"""Payloads: data and results above a threshold, which are kept in a folder or a bucket instead of Redis.

An object is written before the step that stores its reference, so a reference always leads to an object. An object
whose task is not on record was left by a failed submission, or its task has been removed: housekeeping deletes it.
All Redis servers of a system share one payload store.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from firmq.shared.domain.payload import PayloadReference
from firmq.shared.domain.strict_json import load_anything
from firmq.shared.errors import PayloadUnavailable
from firmq.shared.registry import added

if TYPE_CHECKING:
    from firmq.shared.config.settings import Settings
    from firmq.shared.domain.task import TaskDetail


class PayloadStore(Protocol):
    """Where payloads are. Every method raises PayloadUnavailable."""

    def put(self, name: str, content: bytes) -> None:
        """Writes an object, durably and as a whole; one with this name is replaced."""
        ...

    def get(self, name: str) -> bytes | None:
        """Returns the content of an object; None if there is none."""
        ...

    def delete(self, name: str) -> None:
        """Deletes an object, if there is one."""
        ...

    def objects(self) -> Iterator[tuple[str, float]]:
        """Yields the name of each object, and when it was written, in seconds since 1970."""
        ...


class Payloads:
    """Decides which values become payloads, and reads them."""

    def __init__(self, store: PayloadStore | None = None, threshold: int = 0) -> None:
        self.store = store
        self.threshold = threshold
        """Bytes of JSON above which a value becomes a payload."""

    @classmethod
    def of(cls, settings: Settings) -> Payloads:
        """Returns the payloads for the settings, from the feature that has the stores. Raises NotInstalled."""
        return next((opened(settings) for opened in added("payloads")), cls())

    def is_large(self, value: str | bytes) -> bool:
        """Returns whether a value, JSON text, becomes a payload."""
        if self.store is None or len(value) * 4 <= self.threshold:
            return False
        return len(value if isinstance(value, bytes) else value.encode()) > self.threshold

    def keep(self, task_id: str, content: bytes) -> PayloadReference:
        """Writes a payload of a task and returns the reference to it. Raises PayloadUnavailable."""
        reference = PayloadReference.to(task_id, content)
        self._demand().put(reference.name, content)
        return reference

    def data_of(self, task_id: str, data: str) -> str | PayloadReference:
        """Returns data as its task is submitted: as it is, or once it is written the reference to it.

        Raises PayloadUnavailable.
        """
        return self.keep(task_id, data.encode()) if self.is_large(data) else data

    def load(self, reference: PayloadReference) -> bytes:
        """Returns the content of a payload. Raises PayloadUnavailable, and CorruptRecord for changed content."""
        content = self._demand().get(reference.name)
        if content is None:
            raise PayloadUnavailable(
                f"the payload store has no object {reference.name}: check that PAYLOAD_STORE is the same for all parts"
            )
        return reference.check(content)

    def read(self, value: Any) -> Any:
        """Returns the value of a payload, and any other value as it is. Raises the errors of `load`."""
        return load_anything(self.load(value)) if isinstance(value, PayloadReference) else value

    def read_all(self, found: TaskDetail) -> TaskDetail:
        """Returns a task with its data and result. Raises the errors of `load`."""
        if not isinstance(found.data, PayloadReference) and not isinstance(found.result, PayloadReference):
            return found
        return replace(found, data=self.read(found.data), result=self.read(found.result))

    def _demand(self) -> PayloadStore:
        if self.store is None:
            raise PayloadUnavailable(
                "the value is in the payload store, but PAYLOAD_STORE is not set here: set the same for all parts and "
                "for programs that submit directly"
            )
        return self.store
