"""A folder and a bucket keep payloads alike, and say what to change when they cannot."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firmq.shared.domain.payload import PayloadReference
from firmq.shared.errors import CorruptRecord, PayloadUnavailable
from firmq.shared.features.payloads.stores import open_payload_store
from firmq.shared.stores.payloads import Payloads, PayloadStore
from tests.features.payloads.stores import BUCKET, object_server, payload_store_url


@pytest.fixture(params=["folder", "bucket"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with payload_store_url(request.param, tmp_path) as address:
        yield address


@pytest.fixture
def store(url: str) -> PayloadStore:
    found = open_payload_store(url)
    assert found
    return found


def test_an_object_is_what_was_written_last(store: PayloadStore) -> None:
    assert store.get("ab/one") is None
    store.put("ab/one", b"first")
    store.put("ab/one", b"second")
    store.put("cd/two", b"")
    assert (store.get("ab/one"), store.get("cd/two")) == (b"second", b"")
    objects = dict(store.objects())
    assert objects.keys() == {"ab/one", "cd/two"}
    assert all(abs(written - time.time()) < 60 for written in objects.values())
    store.delete("ab/one")
    store.delete("ab/one")
    assert [name for name, _ in store.objects()] == ["cd/two"]


def test_more_objects_than_one_page_of_a_list(store: PayloadStore) -> None:
    names = {f"{at % 7:02x}/{at}" for at in range(1_050)}
    for each in names:
        store.put(each, b"x")
    assert {name for name, _ in store.objects()} == names


def test_values_above_the_threshold_become_payloads(url: str) -> None:
    payloads = Payloads(open_payload_store(url), 1024)
    assert payloads.data_of("t", '"x"') == '"x"'
    assert payloads.data_of("t", f'"{"x" * 1022}"') == f'"{"x" * 1022}"'
    large = f'"{"é" * 600}"'
    reference = payloads.data_of("t", large)
    assert reference == PayloadReference.to("t", large.encode())
    assert payloads.read(reference) == "é" * 600
    assert payloads.read("t") == "t"


def test_a_payload_that_is_missing_or_changed_is_not_read(url: str) -> None:
    payloads = Payloads(open_payload_store(url), 1024)
    reference = payloads.keep("t", b"[1]")
    assert payloads.store
    payloads.store.put(reference.name, b"[2]")
    with pytest.raises(CorruptRecord, match="SHA-256 differs"):
        payloads.load(reference)
    payloads.store.delete(reference.name)
    with pytest.raises(PayloadUnavailable, match=f"no object {reference.name}"):
        payloads.load(reference)
    with pytest.raises(PayloadUnavailable, match="PAYLOAD_STORE is not set here"):
        Payloads().load(reference)


def test_a_folder_that_is_not_mounted_is_not_made(tmp_path: Path) -> None:
    store = open_payload_store(f"file://{tmp_path}/away")
    assert store
    for use in (lambda: store.put("ab/x", b""), lambda: store.get("ab/x"), lambda: list(store.objects())):
        with pytest.raises(PayloadUnavailable, match="is mounted"):
            use()
    assert not (tmp_path / "away").exists()


def test_a_folder_has_no_unfinished_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_payload_store(f"file://{tmp_path}")
    assert store

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PayloadUnavailable, match="No space left on device"):
        store.put("ab/x", b"content")
    assert not list(store.objects())


def test_a_bucket_that_is_away_says_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    with object_server() as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        missing = open_payload_store("s3://no-such-bucket")
        assert missing
        with pytest.raises(PayloadUnavailable, match="NoSuchBucket"):
            missing.put("ab/x", b"")
        with pytest.raises(PayloadUnavailable, match="AWS_ENDPOINT_URL_S3"):
            list(missing.objects())
    gone = open_payload_store(f"s3://{BUCKET}")
    assert gone
    with pytest.raises(PayloadUnavailable, match="cannot be used"):
        gone.get("ab/x")
