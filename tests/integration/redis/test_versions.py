"""Every server that can be had takes the shipped list of rights, and runs the parts by it."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis import Redis

from firmq.shared.local.embedded_redis import ServerBinary
from tests.support.harness import running_system
from tests.support.least_privilege import guarded_server, url_of_user
from tests.support.redis_servers import servers


@pytest.mark.parametrize("server", servers(), ids=str)
def test_each_version_runs_the_parts_by_the_shipped_rights(server: ServerBinary, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    with (
        guarded_server(tmp_path / "redis", server) as redis_server,
        Redis.from_url(redis_server.url, protocol=2) as admin,
    ):
        with running_system(admin, url_of_user(redis_server), logs) as system:
            system.start_worker(WORKER_EXECUTORS="2")
            system.start_housekeeper(HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED="true")
            good = system.submit_many([("slowly", '{"seconds": 0.05}')] * 20)
            bad = system.submit("fail", retry={"max_retries": 1})
            for each in (*good, bad):
                system.ended(each)
            assert {state.value: count for state, count in system.records.counts().items() if count} == {
                "completed": 20,
                "failed": 1,
            }
        denied = admin.execute_command("ACL", "LOG")
        assert not denied, denied
