"""Payload stores for tests: a folder, and a bucket of a real server that speaks the protocol of S3."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

BUCKET = "payloads"


@contextmanager
def object_server() -> Iterator[dict[str, str]]:
    """A server with an empty bucket; the variables by which parts find it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    variables = {
        "AWS_ENDPOINT_URL_S3": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        # The servers of a process share what they store.
        urllib.request.urlopen(f"http://{host}:{port}/moto-api/reset", data=b"").close()
        client = boto3.client(
            "s3",
            endpoint_url=variables["AWS_ENDPOINT_URL_S3"],
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=BUCKET)
        yield variables
    finally:
        server.stop()


@contextmanager
def payload_store_url(kind: str, tmp_path: Path) -> Iterator[str]:
    """The address of an empty store: a folder whose name has a space, or a folder of a bucket."""
    if kind == "folder":
        (tmp_path / "pay loads").mkdir()
        yield f"file://{tmp_path}/pay%20loads"
        return
    with object_server() as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield f"s3://{BUCKET}/of/shop"
