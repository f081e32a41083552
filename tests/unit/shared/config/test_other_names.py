"""Settings under the names that they have in Deckard, in Redisson and in workflow locks."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from firmq.shared.config import foreign_names
from firmq.shared.config.settings import load
from firmq.shared.errors import SettingsError

YAML = """\
redis: {enabled: true, host: one, port: 6379, timeout: 2000ms}
redisson:
  enabled: true
  config: |
    singleServerConfig:
      address: redis://one:6379
      timeout: 2000
      retryAttempts: 3
      retryInterval: 1500
      database: 2
      connectionMinimumIdleSize: 2
      connectionPoolSize: 10
workflow: {lock: {enabled: true, timeout: 30, wait-time: 5}}
"""


def test_variables_are_read() -> None:
    settings = load(
        {
            "DECKARD_HOUSEKEEPER_DISTRIBUTED_EXECUTION_INSTANCE_ID": "hk-1",
            "DECKARD_HOUSEKEEPER_UNLOCK_PARALLELISM": "10",
            "DECKARD_REDIS_ADDRESS": "redis",
            "DECKARD_REDIS_PORT": "1234",
            "WORKFLOW_LOCK_ENABLED": "true",
            "WORKFLOW_LOCK_TIMEOUT": "60",
            "WORKFLOW_LOCK_WAIT_TIME": "5",
        }
    )
    assert settings.housekeeper_distributed_execution_enabled
    assert settings.housekeeper_distributed_execution_instance_id == "hk-1"
    assert (settings.housekeeper_distributed_execution_lock_ttl, settings.housekeeper_lock_wait) == (60, 5)
    assert (settings.store_url, settings.housekeeper_unlock_parallelism) == ("redis://redis:1234/0", 10)


def test_a_file_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "application.yaml"
    file.write_text(YAML)
    settings = load({"CONFIG_FILE": str(file)})
    assert settings.store_url == "redis://one:6379/2"
    assert (settings.redis_timeout, settings.redis_retries, settings.redis_retry_interval) == (2, 3, 1.5)
    assert settings.redis_max_connections == 10
    assert settings.housekeeper_distributed_execution_enabled
    assert settings.housekeeper_lock_wait == 5
    said = [record.getMessage() for record in caplog.records]
    assert [each.split()[1] for each in said] == [
        "redis.enabled",
        "redisson.enabled",
        "redisson.config.singleServerConfig.connectionMinimumIdleSize",
    ]
    assert all("has no effect: " in each for each in said)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://h:1?socket_keepalive=true", "redis://h:1/3?socket_keepalive=true"),
        ("redis+sentinel://h:26379/main", "redis+sentinel://h:26379/main/3"),
        ("redis+sentinel://a,[::1]:1/main/2", "redis+sentinel://a,[::1]:1/main/2"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock?db=3"),
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://h?db=1", "redis://h?db=1"),
    ],
)
def test_the_database_goes_into_an_address_that_has_none(url: str, address: str) -> None:
    assert load({"REDIS_URL": url, "REDIS_DATABASE": "3"}).store_url == address


def test_options_of_redisson_that_no_setting_is_like_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "application.yaml"
    inner = "singleServerConfig: {address: 'redis://one', password: null, clientName: null}\n    threads: 16\n"
    file.write_text(f"redisson:\n  config: |\n    {inner}")
    assert load({"CONFIG_FILE": str(file)}).store_url == "redis://one"
    assert [each.split()[1] for each in caplog.messages] == [
        "redisson.config.singleServerConfig.clientName",
        "redisson.config.threads",
    ]
    file.write_text('redisson:\n  config: |\n    singleServerConfig: {address: "redis://:hunter2@one}\n')
    with pytest.raises(SettingsError) as refused:
        load({"CONFIG_FILE": str(file)})
    assert "not YAML" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_service_links_are_no_settings_and_line_feeds_no_part_of_them() -> None:
    assert load({"DECKARD_REDIS_PORT": "tcp://10.0.0.1:6379"}).redis_port == 6379
    assert load({"DECKARD_REDIS_PASSWORD": "x\n", "REDIS_PASSWORD": "x"}).redis_password == "x"


def test_a_conflict_with_our_own_name_is_refused(tmp_path: Path) -> None:
    both = {"WORKFLOW_LOCK_WAIT_TIME": "5", "HOUSEKEEPER_LOCK_WAIT": "6"}
    with pytest.raises(SettingsError, match="HOUSEKEEPER_LOCK_WAIT and WORKFLOW_LOCK_WAIT_TIME differ"):
        load(both)
    assert load({**both, "HOUSEKEEPER_LOCK_WAIT": "5s"}).housekeeper_lock_wait == 5
    file = tmp_path / "application.yaml"
    file.write_text("housekeeper: {distributed_execution: {lock_wait: 6}}\nworkflow: {lock: {wait-time: 5}}\n")
    with pytest.raises(SettingsError, match=r"workflow.lock.wait-time differs from another place of the same setting"):
        load({"CONFIG_FILE": str(file)})


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("DECKARD_GRPC_PORT", "docs/reference/settings.md lists all settings"),
        ("WORKFLOW_LOCK_TIMEUOT", "docs/reference/settings.md lists all settings"),
        ("DECKARD_HOUSEKEEPER_ENABLED", "a housekeeper is a process of its own: firmq housekeeper"),
    ],
)
def test_what_has_no_meaning_is_said(name: str, why: str) -> None:
    assert dict(foreign_names.hints({name: "secret"})) == {name: why}


def test_our_name_is_said_in_the_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"WORKFLOW_LOCK_ENABLED": "true"})
    with caplog.at_level(logging.INFO):
        foreign_names.warn(load())
    assert caplog.messages == ["WORKFLOW_LOCK_ENABLED is read as HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED"]
