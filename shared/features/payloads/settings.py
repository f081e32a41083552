"""The store of large payloads."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import Seconds
from firmq.shared.domain.url import split_url


def _payload_store(url: str) -> str:
    parts = split_url(url)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("must have no credentials and no parameters: set the AWS_* variables for a bucket")
    is_folder = parts.scheme == "file" and not parts.netloc and len(parts.path) > 1
    if url and not is_folder and not (parts.scheme == "s3" and parts.netloc):
        raise ValueError("must look like file:///var/lib/firmq/payloads or s3://bucket/prefix")
    return url


class PayloadSettings(Group):
    """The store of large payloads."""

    payload_store: Annotated[str, AfterValidator(_payload_store)] = at(
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
