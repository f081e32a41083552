"""Redis by TLS: everything works, and what does not fit together is said in words that name the setting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from firmq.shared.domain.task import TaskState
from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.integration.redis.load import get, start_gateway
from tests.integration.redis.tls import Certificates, tls_in_front_of
from tests.support.harness import System, free_port, running_system, wait_until
from tests.support.least_privilege import url_of_user


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def url(redis_server: EmbeddedRedis, certificates: Certificates) -> Iterator[str]:
    """The address by TLS."""
    with tls_in_front_of(redis_server.port, certificates.context(ask_clients=False)) as port:
        yield _moved(redis_server, port)


@pytest.fixture
def choosy_url(redis_server: EmbeddedRedis, certificates: Certificates) -> Iterator[str]:
    """The address by TLS of a server that wants a certificate from everybody."""
    with tls_in_front_of(redis_server.port, certificates.context(ask_clients=True)) as port:
        yield _moved(redis_server, port)


def _moved(server: EmbeddedRedis, port: int) -> str:
    return url_of_user(server).replace("redis://", "rediss://").replace(f":{server.port}/", f":{port}/")


def _completes_a_task(redis: Redis, url: str, tmp_path: Path, **environment: str) -> None:
    with running_system(redis, url, tmp_path, **environment) as system:
        gateway, board = free_port(), free_port()
        system.start("worker", WORKER_EXECUTORS="2")
        system.start_housekeeper()
        system.start("dashboard", DASHBOARD_PORT=str(board))
        start_gateway(system, gateway)
        wait_until(system.workers.all, "the worker is there", 60)
        assert system.ended(system.submit("noop", retry={"max_retries": 0})).summary.state is TaskState.COMPLETED
        wait_until(lambda: get(board, "/health/ready")[0] == 200, "the dashboard is there", 60)


def test_everything_works_over_tls_with_a_private_authority(
    redis_client: Redis, url: str, certificates: Certificates, tmp_path: Path
) -> None:
    _completes_a_task(redis_client, url, tmp_path, REDIS_CA_FILE=str(certificates.ca_file))


def test_a_certificate_of_ours_is_shown_to_a_server_that_wants_one(
    redis_client: Redis, choosy_url: str, certificates: Certificates, tmp_path: Path
) -> None:
    environment = {
        "REDIS_CA_FILE": str(certificates.ca_file),
        "REDIS_CERT_FILE": str(certificates.cert_file),
        "REDIS_KEY_FILE": str(certificates.key_file),
    }
    _completes_a_task(redis_client, choosy_url, tmp_path, **environment)


def test_an_unknown_authority_is_refused_with_the_setting_to_change(system: System, url: str) -> None:
    process = system.start("worker", REDIS_URL=url, WORKER_EXECUTORS="2")
    assert process.wait(60) == 2
    assert "REDIS_CA_FILE must hold the authority" in system.logs()


def test_a_server_that_wants_a_certificate_is_waited_for_with_the_settings_to_change(
    system: System, choosy_url: str, certificates: Certificates
) -> None:
    system.start("worker", REDIS_URL=choosy_url, REDIS_CA_FILE=str(certificates.ca_file), WORKER_EXECUTORS="2")
    wait_until(lambda: "REDIS_CERT_FILE and REDIS_KEY_FILE" in system.logs(), "the worker says what it lacks", 60)


def test_tls_on_our_side_only_is_said(system: System) -> None:
    process = system.start("worker", REDIS_URL=system.url.replace("redis://", "rediss://"), WORKER_EXECUTORS="2")
    assert process.wait(60) == 2
    assert "answers to redis:// and not to rediss://" in system.logs()


def test_tls_on_their_side_only_is_said(system: System, url: str) -> None:
    process = system.start("worker", REDIS_URL=url.replace("rediss://", "redis://"), WORKER_EXECUTORS="2")
    assert process.wait(60) == 2
    assert "answers to rediss:// and not to redis://" in system.logs()
