"""`firmq dev` from its first check to the last write of Redis, with stand-ins for the services."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import redis

from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis import schema_version
from firmq.shared.stores.api_keys import Scope, new_key
from tests.integration.local.watching import ROOT, Program, eventually, is_gone, redis_answers
from tests.support.harness import free_port
from tests.support.keys import keys

Start = Callable[..., Program]

PORTS = ("GATEWAY_PORT", "DASHBOARD_PORT", "WORKER_METRICS_PORT", "HOUSEKEEPER_METRICS_PORT", "REDIS_PORT")
"""Each has one that no connection of another test can take before its part does."""
IRRELEVANT = ("REDIS_URL", "REDIS_HOST", "REDIS_PASSWORD", "REDIS_SERVER_BINARY", "CONFIG_FILE", "BIND_HOST")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder to start in, whose services stand in for ours; Python looks here first."""
    package = tmp_path / "firmq"
    package.mkdir()
    (package / "__init__.py").symlink_to(ROOT / "firmq" / "__init__.py")
    (package / "__main__.py").write_text(
        "import sys\nfrom tests.features.dev.stand_in import main\nmain(sys.argv[1])\n"
    )
    for name in ("shared", "worker"):
        (package / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    inherited = {name: value for name, value in os.environ.items() if name not in IRRELEVANT}
    with ExitStack() as programs:

        def start(**env: str) -> Program:
            own = {"PYTHONPATH": f"{folder}:{ROOT}", "JOURNAL": str(folder / "journal")}
            own |= {name: str(free_port()) for name in PORTS}
            argv = [sys.executable, "-m", "firmq.shared.features.dev.main"]
            return programs.enter_context(Program(argv, {**inherited, **own, **env}, cwd=folder))

        yield start


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def events(folder: Path) -> list[str]:
    return [line.rpartition(" ")[0] for line in (folder / "journal").read_text().splitlines()]


def server_of(program: Program) -> psutil.Process:
    return next(process for process in program.family() if "server" in process.name())


@pytest.mark.parametrize(
    ("modules", "line"),
    [
        (
            "shop.tusks",
            "module shop.tusks cannot be imported: no module named 'shop' in {folder} or elsewhere on Python's path",
        ),
        (
            "firmq.tusks",
            (
                "module firmq.tusks cannot be imported: no module named 'firmq.tusks' in {folder} "
                "or elsewhere on Python's path"
            ),
        ),
        ("./shop/tasks.py", "./shop/tasks.py is a file: give the name of the module, shop.tasks"),
    ],
)
def test_a_module_that_does_not_exist_is_one_line_and_nothing_is_started(
    start: Start, folder: Path, modules: str, line: str
) -> None:
    program = start(TASK_MODULES=modules)
    assert program.await_end() == 2
    assert program.output == line.format(folder=folder) + "\n"
    assert not (folder / "journal").exists()
    assert not (folder / ".data").exists()


def test_a_module_that_cannot_be_imported_is_shown_with_the_place(start: Start, folder: Path) -> None:
    (folder / "shop.py").write_text("print('imported')\nimport no_such_package\n")
    program = start(TASK_MODULES="shop")
    assert program.await_end() == 2
    assert "module shop cannot be imported: ModuleNotFoundError: No module named 'no_such_package'" in program.output
    assert 'shop.py", line 2' in program.output
    assert "importlib" not in program.output


def test_where_a_key_is_needed_the_command_to_try_has_one(start: Start) -> None:
    key, _ = new_key("shop", [Scope.SUBMIT])
    start(API_KEYS=key.line).await_output('-H "Authorization: Bearer $KEY"')


def test_everything_comes_up_and_says_where_it_is(start: Start, folder: Path) -> None:
    program = start()
    program.await_output("curl -X POST http://localhost:")
    assert sorted(event for event in events(folder) if "started" in event) == [
        "dashboard started",
        "gateway started",
        "housekeeper started",
        "worker started",
    ]
    assert (
        """/tasks -H 'Content-Type: application/json' -d '{"type": "process", "data": "some text"}'""" in program.output
    )


def test_a_saved_file_makes_the_worker_reload(start: Start, folder: Path) -> None:
    program = start()
    program.await_output("Submit a task")
    assert "worker told to reload" not in events(folder)
    (folder / "shop.py").write_text("x = 1\n")
    program.await_output("shop.py changed: reloading handlers")
    eventually("the worker was told", lambda: "worker told to reload" in events(folder))


def test_a_file_that_was_saved_while_the_worker_starts_makes_it_reload_afterwards(start: Start, folder: Path) -> None:
    program = start(WAITS_FOR=f"worker:{folder / 'gate'}")
    eventually("the others have started", lambda: (folder / "journal").exists() and len(events(folder)) == 3)
    (folder / "shop.py").write_text("x = 1\n")
    (folder / "gate").touch()
    program.await_output("shop.py changed: reloading handlers")
    eventually("the worker was told", lambda: events(folder)[-1] == "worker told to reload")
    assert events(folder).count("worker started") == 1


def test_ctrl_c_stops_ingress_then_workers_then_redis(start: Start, folder: Path) -> None:
    program = start()
    program.await_output("Submit a task")
    server = server_of(program)
    program.signal(signal.SIGINT)
    assert program.await_end() == 0
    ended = [event.split()[0] for event in events(folder) if event.endswith("ended")]
    assert set(ended[:2]) == {"gateway", "dashboard"}
    assert set(ended[2:]) == {"worker", "housekeeper"}
    assert is_gone(server.pid)
    assert "ready to exit" in (folder / ".data" / "redis.log").read_text()


def test_a_data_folder_of_another_version_is_refused_before_a_service_starts(start: Start, folder: Path) -> None:
    with EmbeddedRedis(data_dir=folder / ".data") as server, redis.Redis.from_url(server.url) as client:
        client.set(keys.FORMAT, schema_version.OLDEST_READ - 1)
    program = start()
    assert program.await_end() == 2
    assert f"this version reads {schema_version.OLDEST_READ} or newer" in program.output
    assert f"set DATA_DIR to another folder than {folder / '.data'}" in program.output
    assert not (folder / "journal").exists()


def test_tasks_are_still_there_after_a_restart(start: Start, folder: Path) -> None:
    first = start()
    first.await_output("Submit a task")
    url_file = folder / ".data" / "redis.url"
    with redis.Redis.from_url(url_file.read_text().strip()) as client:
        client.set("kept", 1)
    first.signal(signal.SIGTERM)
    first.await_end()
    start().await_output("Submit a task")
    with redis.Redis.from_url(url_file.read_text().strip()) as client:
        assert client.get("kept") == b"1"


def test_services_get_the_address_of_redis_by_environment_alone(start: Start, folder: Path) -> None:
    program = start(REDIS_PASSWORD="left over")
    program.await_output("Submit a task")
    url = (folder / ".data" / "redis.url").read_text().strip()
    services = [process for process in program.family() if "-m" in process.cmdline()]
    assert len(services) == 4
    for service in services:
        environment = service.environ()
        assert environment["REDIS_URL"] == url
        assert environment["BIND_HOST"] == "127.0.0.1"
        assert environment["FIRMQ_URL"] == f"http://127.0.0.1:{environment['GATEWAY_PORT']}"
        assert "REDIS_PASSWORD" not in environment
        assert url not in " ".join(service.cmdline())


def test_redis_that_dies_is_started_again(start: Start, folder: Path) -> None:
    program = start()
    program.await_output("Submit a task")
    server_of(program).kill()
    program.await_output("Redis was killed by SIGKILL; starting it again")
    url = (folder / ".data" / "redis.url").read_text().strip()
    with redis.Redis.from_url(url, socket_timeout=5) as client:
        eventually("Redis answers again", lambda: redis_answers(client))


def test_service_that_does_not_start_ends_everything_with_its_words(start: Start) -> None:
    program = start(FAULTY="dashboard")
    assert program.await_end() == 1
    assert "dashboard ended with status 3 before it was ready" in program.output
    assert "dashboard cannot find its slippers" in program.output
    assert "Traceback" not in program.output


def test_taken_port_is_one_line_and_nothing_is_started(start: Start, folder: Path, taken_port: int) -> None:
    program = start(DASHBOARD_PORT=str(taken_port))
    assert program.await_end() == 2
    expected = f"port {taken_port} of dashboard is in use by another program: set DASHBOARD_PORT to another port"
    assert program.output == expected + "\n"
    assert not (folder / ".data").exists()


def test_wanted_port_of_redis_that_is_taken_is_one_line(start: Start, taken_port: int) -> None:
    program = start(REDIS_PORT=str(taken_port))
    assert program.await_end() == 2
    expected = f"port {taken_port} of Redis is in use by another program: set REDIS_PORT to another port"
    assert program.output == expected + "\n"


def test_given_redis_is_used_and_none_is_started(start: Start, folder: Path, redis_url: str) -> None:
    program = start(REDIS_URL=redis_url)
    program.await_output("Submit a task")
    eventually("there are four parts and no Redis", lambda: len(program.family()) == 4)
    assert not (folder / ".data").exists()
    assert redis_url not in program.output


def test_password_of_a_given_redis_is_not_shown(start: Start, redis_server: EmbeddedRedis) -> None:
    program = start(REDIS_URL=f"redis://:wrong-secret@127.0.0.1:{redis_server.port}/0")
    assert program.await_end() == 2
    assert "Redis refused the password" in program.output
    assert "wrong-secret" not in program.output


def test_unreachable_redis_is_one_line(start: Start) -> None:
    program = start(REDIS_URL="redis://:secret@127.0.0.1:1/0")
    assert program.await_end() == 2
    assert len(program.output.splitlines()) == 1
    assert "(redis://127.0.0.1:1/0): start it, correct REDIS_URL" in program.output


def test_several_servers_are_for_parts_that_are_started_one_by_one(start: Start) -> None:
    program = start(REDIS_URL="redis+cluster://a:1?partitions=2")
    assert program.await_end() == 2
    assert "REDIS_URL" in program.output


def test_mistakes_in_the_settings_end_with_status_2(start: Start) -> None:
    program = start(GATEWAY_PORT="many")
    assert program.await_end() == 2
    assert "GATEWAY_PORT" in program.output
    assert "Traceback" not in program.output


@pytest.mark.skipif(sys.platform != "linux", reason="only the Linux kernel tells a child that its parent has died")
def test_nothing_is_left_when_the_launcher_is_killed(start: Start) -> None:
    program = start()
    program.await_output("Submit a task")
    eventually("all parts are there", lambda: len(program.family()) == 5)
    family = program.family()
    program.signal(signal.SIGKILL)
    eventually("all have ended", lambda: all(is_gone(process.pid) for process in family))
