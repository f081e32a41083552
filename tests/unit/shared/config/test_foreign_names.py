"""Variables that are not read are named, with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from firmq.shared.config.foreign_names import hints, warn
from firmq.shared.config.settings import load
from firmq.shared.submission.queue import Queue
from tests.support.harness import ROOT, free_port

LINKS = {
    "REDIS_PORT": "tcp://10.96.0.11:6379",
    "GATEWAY_PORT": "tcp://10.96.0.12:8000",
    "WORKER_METRICS_PORT": "udp://10.96.0.13:9100",
    "JAEGER_HOST": "tcp://10.96.0.14:4318",
}


def test_service_links_are_not_read_and_said_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load({**LINKS, "REDIS_SERVICE_HOST": "10.96.0.11"})
    assert (settings.redis_port, settings.gateway_port, settings.worker_metrics_port) == (6379, 8000, 9100)
    assert settings.jaeger_host == ""
    for name, value in LINKS.items():
        monkeypatch.setenv(name, value)
    Queue("redis://127.0.0.1:1/0").close()
    assert [each.getMessage().split()[0] for each in caplog.records] == sorted(LINKS)
    assert "enableServiceLinks: false" in caplog.text


@pytest.mark.parametrize(
    ("environment", "unused"),
    [
        ({"REDIS_URL": "redis://one", "REDIS_HOST": "two", "REDIS_PORT": "6379"}, ["REDIS_HOST", "REDIS_PORT"]),
        ({"REDIS_URL": "redis://one", "REDIS_CA_FILE": "/ca"}, ["REDIS_CA_FILE"]),
        ({"REDIS_URL": "rediss://one", "REDIS_CA_FILE": "/ca", "REDIS_HOST": ""}, []),
        ({"REDIS_HOST": "one", "REDIS_SENTINEL_PASSWORD": "x"}, ["REDIS_SENTINEL_PASSWORD"]),
        ({"REDIS_URL": "redis+sentinel://one/a", "REDIS_SENTINEL_PASSWORD": "x"}, []),
        ({"REDIS_USERNAME": "app"}, ["REDIS_USERNAME"]),
        ({"REDIS_URL": "redis://:a@one", "REDIS_PASSWORD": "x", "REDIS_USERNAME": "app"}, ["REDIS_PASSWORD"]),
        ({"REDIS_URL": "redis://app@one", "REDIS_PASSWORD": "x"}, []),
    ],
)
def test_what_another_setting_makes_useless_is_said(environment: dict[str, str], unused: list[str]) -> None:
    assert list(dict(hints(environment))) == unused


def test_what_another_setting_makes_useless_is_said_of_the_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("redis:\n  url: redis://:secret@one\n  host: two\n  password: secret\n")
    for name in [each for each in os.environ if each.startswith("REDIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CONFIG_FILE", str(file))
    monkeypatch.setenv("REDIS_SENTINEL_USERNAME", "one")
    warn(load())
    assert [each.getMessage().partition(" is not read")[0] for each in caplog.records] == [
        f"redis.host in {file}",
        f"redis.password in {file}",
        "REDIS_SENTINEL_USERNAME",
    ]
    assert "secret" not in caplog.text


@pytest.mark.parametrize("part", ["gateway", "worker", "housekeeper", "dashboard"])
def test_a_part_says_so_when_it_starts(part: str) -> None:
    environment = {
        **os.environ,
        "DECKARD_GRPC_PORT": "debug-value",
        "REDIS_URL": f"redis://127.0.0.1:{free_port()}/0",
        **dict.fromkeys(("GATEWAY_PORT", "DASHBOARD_PORT", "WORKER_METRICS_PORT", "HOUSEKEEPER_METRICS_PORT"), "0"),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "firmq", part], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )
    end = threading.Timer(60, process.kill)
    end.start()
    try:
        assert process.stderr
        line = next((each for each in process.stderr if "DECKARD" in each), "nothing was said")
    finally:
        end.cancel()
        process.kill()
        process.wait()
    assert "DECKARD_GRPC_PORT is not read: docs/reference/settings.md" in line
    assert "debug-value" not in line
