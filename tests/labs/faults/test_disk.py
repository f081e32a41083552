"""A disk that is full is an error of each write, as the laboratory wants it, and what Redis has answered is kept."""

from __future__ import annotations

from pathlib import Path

from redis import Redis
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import RedisError, ResponseError

from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from tests.labs.faults.site import fill_disk, make_room
from tests.labs.faults.slow_disk import HeldFsync
from tests.support.harness import wait_until

ROOM = 5000


def write_until_refused(server: EmbeddedRedis) -> tuple[int, RedisError]:
    """How many writes were answered, and how the next was not."""
    with connect(server.url, retries=0, check_format=False) as client:
        for number in range(100_000):
            try:
                client.rpush("answered", number)
            except RedisError as error:
                return number, error
    raise AssertionError("there is room without end")


def kept(server: EmbeddedRedis) -> list[int]:
    """After kill -9 and a start."""
    server.kill()
    server.start()
    with connect(server.url, check_format=False) as client:
        return [int(each) for each in client.lrange("answered", 0, -1)]


def test_redis_that_must_have_all_it_answers_in_its_file_ends(tmp_path: Path) -> None:
    with EmbeddedRedis(data_dir=tmp_path, options={"appendfsync": "always"}) as server:
        fill_disk(server, ROOM)
        answered, error = write_until_refused(server)
        wait_until(lambda: not server.running, "Redis ends")
        assert isinstance(error, NoConnection)
        assert answered > ROOM / 100
        # The last may have been carried out without an answer.
        assert kept(server) in (list(range(answered)), list(range(answered + 1)))


def test_redis_that_writes_each_second_refuses_more_until_there_is_room(tmp_path: Path) -> None:
    with EmbeddedRedis(data_dir=tmp_path) as server:
        fill_disk(server, ROOM)
        answered, error = write_until_refused(server)
        assert isinstance(error, ResponseError)
        assert "MISCONF" in str(error)
        make_room(server)
        wait_until(lambda: _takes_writes(server), "Redis takes writes again")
        assert kept(server) == list(range(answered))


def test_with_a_slow_fsync_redis_answers_what_a_kill_loses(tmp_path: Path) -> None:
    """The fault is real: `everysec` postpones the write itself while an fsync is under way."""
    with EmbeddedRedis(data_dir=tmp_path, options={"appendfsync": "everysec"}) as server:
        with connect(server.url, retries=0, check_format=False) as client:
            client.rpush("answered", 0)
            held = HeldFsync(server.pid or 0)
            answered = 1
            while not _write_is_postponed(client):
                answered = client.rpush("answered", answered)
            answered = client.rpush("answered", answered)
        held.kill_server()
        assert kept(server) < list(range(answered))


def _write_is_postponed(client: Redis) -> bool:
    return int(client.info("persistence")["aof_buffer_length"]) > 0


def _takes_writes(server: EmbeddedRedis) -> bool:
    with connect(server.url, check_format=False) as client:
        try:
            return bool(client.set("room", 1))
        except RedisError:
            return False
