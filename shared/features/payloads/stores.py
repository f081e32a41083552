"""Opens the store of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from firmq.shared.conditions.findings import Finding, fine, wrong
from firmq.shared.domain.task import new_task_id
from firmq.shared.errors import PayloadUnavailable
from firmq.shared.features.payloads.folder import PayloadFolder
from firmq.shared.features.payloads.settings import PayloadSettings
from firmq.shared.stores.payloads import Payloads, PayloadStore

if TYPE_CHECKING:
    from firmq.shared.config.settings import Settings


def open_payload_store(url: str) -> PayloadStore | None:
    """Returns the store at an address of PAYLOAD_STORE; None for "". Nothing is read yet. Raises NotInstalled."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return PayloadFolder(unquote(parts.path))
    if parts.scheme == "s3":
        from firmq.shared.features.payloads.bucket import PayloadBucket

        return PayloadBucket(parts.netloc, parts.path.strip("/"))
    return None


def payloads_of(settings: Settings) -> Payloads:
    """Returns the payloads for the settings. Raises NotInstalled."""
    own = PayloadSettings.of(settings)
    return Payloads(open_payload_store(own.payload_store), own.payload_threshold)


def check_payload_store(redis: object, settings: Settings, now: object) -> list[Finding]:
    """Returns whether a payload can be written, read and deleted; not checked without PAYLOAD_STORE."""
    payloads = payloads_of(settings)
    if payloads.store is None:
        return []
    try:
        probe = payloads.keep(f"doctor-{new_task_id()}", b"null")
        payloads.load(probe)
        payloads.store.delete(probe.name)
    except PayloadUnavailable as error:
        advice = "submissions above PAYLOAD_THRESHOLD get 503 until it can be used: see docs/guides/large-payloads.md"
        return [wrong("payload store", str(error), advice)]
    return [fine("payload store", f"{PayloadSettings.of(settings).payload_store} can be written and read")]
