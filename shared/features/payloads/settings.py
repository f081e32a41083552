"""The store of large payloads."""

from __future__ import annotations

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import PayloadStoreUrl, Seconds


class PayloadSettings(Group):
    """The store of large payloads."""

    payload_store: PayloadStoreUrl = at(
        "payloads.store",
        "",
        "Where data and results above PAYLOAD_THRESHOLD are kept instead of Redis: a folder that all parts share, "
        "file:///var/lib/firmq/payloads, or a bucket, s3://bucket/prefix; set the same for all parts. Empty: in "
        "Redis.",
    )
    payload_threshold: int = at(
        "payloads.threshold",
        1 << 16,
        "Bytes of JSON above which the data or the result of a task is kept in PAYLOAD_STORE.",
        ge=1024,
        le=64 << 20,
    )
    housekeeper_payloads_interval: Seconds = at(
        "housekeeper.payloads.interval",
        600,
        "Pause between removals of unneeded objects from PAYLOAD_STORE.",
        gt=0,
    )
