"""Payloads in a bucket of S3, or of a store with its protocol (AWS_ENDPOINT_URL_S3)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from firmq.shared.errors import PayloadUnavailable, needs

with needs("PAYLOAD_STORE with s3://", extra="s3"):
    from boto3.session import Session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

_OPTIONS = Config(
    connect_timeout=2,
    read_timeout=10,
    retries={"mode": "standard", "total_max_attempts": 3},
    max_pool_connections=50,
    # The SHA-256 in the reference covers more than these, which not every store knows.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)


class PayloadBucket:
    """One object of the bucket for each payload, below a prefix. The AWS SDK finds credentials and region."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self.bucket = bucket
        self.prefix = f"{prefix}/" if prefix else ""
        self._lock = threading.Lock()

    def put(self, name: str, content: bytes) -> None:
        """Writes an object. Raises PayloadUnavailable."""
        with self._translated():
            self._client.put_object(Bucket=self.bucket, Key=self.prefix + name, Body=content)

    def get(self, name: str) -> bytes | None:
        """Returns the content of an object; None if there is none. Raises PayloadUnavailable."""
        with self._translated():
            try:
                content: bytes = self._client.get_object(Bucket=self.bucket, Key=self.prefix + name)["Body"].read()
            except self._client.exceptions.NoSuchKey:
                return None
            return content

    def delete(self, name: str) -> None:
        """Deletes an object, if there is one. Raises PayloadUnavailable."""
        with self._translated():
            self._client.delete_object(Bucket=self.bucket, Key=self.prefix + name)

    def objects(self) -> Iterator[tuple[str, float]]:
        """Yields the name of each object, and when it was written. Raises PayloadUnavailable."""
        with self._translated():
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
            for page in pages:
                for each in page.get("Contents", ()):
                    yield each["Key"].removeprefix(self.prefix), each["LastModified"].timestamp()

    @cached_property
    def _made(self) -> Any:
        return Session().client("s3", config=_OPTIONS)

    @property
    def _client(self) -> Any:
        with self._lock:  # sessions are not thread-safe; clients are
            return self._made

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError, ValueError) as error:  # ValueError: for an invalid endpoint
            raise PayloadUnavailable(
                f"the payload store s3://{self.bucket}/{self.prefix} cannot be used: {error}: check the bucket, its "
                "credentials and AWS_ENDPOINT_URL_S3"
            ) from error
