"""The addresses of payload stores, and the doctor's check of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from firmq.shared.conditions.findings import Level
from firmq.shared.config.settings import load
from firmq.shared.errors import SettingsError
from firmq.shared.features.payloads.settings import PayloadSettings
from firmq.shared.features.payloads.stores import check_payload_store
from tests.support.harness import System


@pytest.mark.parametrize("url", ["file:///srv/payloads", "s3://bucket", "s3://bucket/of/shop", ""])
def test_a_payload_store_is_a_folder_or_a_bucket(url: str) -> None:
    assert PayloadSettings.of(load({"PAYLOAD_STORE": url})).payload_store == url


@pytest.mark.parametrize(
    "url",
    ["/srv/payloads", "file://srv/payloads", "file:///", "s3://", "gs://bucket", "s3://key:word@bucket", "s3://b?x=1"],
)
def test_another_payload_store_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"PAYLOAD_STORE: must (look like|have no credentials)"):
        load({"PAYLOAD_STORE": url})


def test_a_payload_store_is_tried(system: System, tmp_path: Path) -> None:
    settings = load({"REDIS_URL": system.url, "PAYLOAD_STORE": f"file://{tmp_path}/payloads"})
    away = check_payload_store(system.redis, settings, None)[0]
    assert (away.level, "is mounted" in away.seen) == (Level.ERROR, True)
    (tmp_path / "payloads").mkdir()
    assert check_payload_store(system.redis, settings, None)[0].level is Level.OK
    assert not [each for each in (tmp_path / "payloads").rglob("*") if each.is_file()]
