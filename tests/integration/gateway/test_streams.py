"""A batch that comes as a stream, to a gateway that is a process: large, slow, broken off, killed, sent again."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from shared.domain.task import TaskState
from shared.redis import keys
from shared.redis.scripts import Scripts
from shared.stores.task_types import TaskType, TaskTypes
from shared.stores.tasks import Records
from tests.integration.gateway.driving import QUEUES
from tests.integration.gateway.test_server import Running, refuses, start
from tests.support.harness import System, wait_until

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def mortal(system: System, redis_client: Redis) -> Running:
    """A gateway that a test may stop and kill."""
    TaskTypes(redis_client).publish([TaskType(name="process", schema={})])
    return start(system)


def line(number: int) -> bytes:
    return b'{"type":"process","data":{"n":%d}}\n' % number


class Sender:
    """Sends lines in a thread of its own while the answer is read; both sides hold a few of them at a time."""

    def __init__(self, gateway: Running, first: int, last: int, key: str) -> None:
        self.socket = gateway.connect()
        self.socket.settimeout(60)
        self.places = range(first, last)
        self.head = (
            f"POST /tasks/batch?start={first} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            f"Idempotency-Key: {key}\r\nTransfer-Encoding: chunked\r\n\r\n"
        ).encode()
        self.thread = threading.Thread(target=self._send, daemon=True)

    def _send(self) -> None:
        try:
            self.socket.sendall(self.head)
            for at in range(0, len(self.places), 500):
                data = b"".join(map(line, self.places[at : at + 500]))
                self.socket.sendall(b"%x\r\n%b\r\n" % (len(data), data))
            self.socket.sendall(b"0\r\n\r\n")
        except OSError:
            pass  # the gateway was killed

    def answers(self) -> Iterator[Any]:
        """The lines of the answer, for as long as there are whole ones."""
        self.thread.start()
        with closing(self.socket), self.socket.makefile("rb") as file:
            try:
                while file.readline().strip():
                    pass
                for each in file:
                    if each.startswith(b"{") and each.endswith(b"}\n"):
                        yield json.loads(each)
            except OSError:
                return


def resident(pids: list[int]) -> int:
    """Megabytes of memory of the hungriest of these processes."""
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
    return max(pages) * PAGE >> 20


def processor_seconds(pids: list[int]) -> float:
    times = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in pids]
    return sum(int(part) for pair in times for part in pair) / TICKS


@pytest.mark.alone
def test_a_hundred_thousand_tasks_in_one_stream_need_little_time_and_no_memory(
    mortal: Running, redis_client: Redis
) -> None:
    for _ in Sender(mortal, 0, 2000, "warm").answers():
        pass
    workers, before = mortal.workers, resident(mortal.workers)
    own = resident([os.getpid()])
    spent = processor_seconds(workers) + redis_client.info("cpu")["used_cpu_user"]
    begun, highest, accepted = time.monotonic(), 0, 0
    for answer in Sender(mortal, 0, 100_000, "large").answers():
        if "index" in answer:
            assert answer["index"] == accepted
            accepted += 1
            if accepted % 5000 == 0:
                highest = max(highest, resident(workers))
    seconds = time.monotonic() - begun
    spent = processor_seconds(workers) + redis_client.info("cpu")["used_cpu_user"] - spent
    assert answer == {"complete": True, "accepted": 100_000, "refused": 0}
    print(f"{seconds:.1f} s, {spent:.1f} processor seconds of gateway and Redis, {before} → {highest} MB")
    # The processor's time, because the machine that runs this has other work too: which makes that longer as well.
    assert spent < 20
    assert highest - before < 20
    assert resident([os.getpid()]) - own < 20
    assert Records(Scripts(redis_client), QUEUES).counts()[TaskState.PENDING] == 102_000


def test_what_was_answered_before_the_gateway_was_killed_is_true_and_the_rest_is_sent_again(
    mortal: Running, system: System, redis_client: Redis
) -> None:
    total, said = 20_000, {}
    for answer in Sender(mortal, 0, total, "import").answers():
        if "index" in answer:
            said[answer["index"]] = answer["task_id"]
        if len(said) == total // 2:
            for pid in [mortal.process.pid, *mortal.workers]:
                os.kill(pid, signal.SIGKILL)
    assert total // 2 <= len(said) < total, "it was killed half way"
    records = Records(Scripts(redis_client), QUEUES)
    stored = records.counts()[TaskState.PENDING]
    assert stored >= len(said)
    assert all(redis_client.exists(keys.rq_job(task_id)) for task_id in said.values())
    # The rest, as far as the sender knows; some of it had been stored without being answered.
    again = {
        answer["index"]: answer["task_id"]
        for answer in Sender(start(system), len(said), total, "import").answers()
        if "index" in answer
    }
    assert len(again) == total - len(said)
    assert records.counts()[TaskState.PENDING] == total
    assert len({*said.values(), *again.values()}) == total


def test_a_sender_that_reads_only_at_the_end_is_answered_too(running: Running) -> None:
    body = b"".join(map(line, range(30_000)))
    with running.connect() as connection:
        connection.settimeout(60)
        connection.sendall(
            b"POST /tasks/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)
        )
        connection.sendall(body)
        answer = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    assert answer.count(b'"status":"pending"') == 30_000
    assert b'"complete":true' in answer


def test_lines_are_answered_before_the_next_are_sent(running: Running) -> None:
    with running.connect() as connection, connection.makefile("rb") as file:
        connection.sendall(
            b"POST /tasks/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        assert b"100 Continue" in file.readline()
        for number in range(3):
            connection.sendall(b"%x\r\n%b\r\n" % (len(line(number)), line(number)))
            while b'"index":%d' % number not in file.readline():
                pass
        connection.sendall(b"0\r\n\r\n")
        assert b'"accepted":3' in file.read()


@pytest.mark.parametrize(
    "body",
    [b"zz\r\n", b"-5\r\n", b"5\r\nabc", b"ffffffffffffffff\r\nabc", b"1" * 400],
    ids=lambda body: repr(body[:12]),
)
def test_a_stream_that_is_broken_off_or_no_stream_costs_its_sender_alone(running: Running, body: bytes) -> None:
    head = b"POST /tasks/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
    with running.connect() as connection:
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + body)
        connection.shutdown(socket.SHUT_WR)
        assert b'"complete"' not in b"".join(iter(lambda: connection.recv(65536), b""))
    assert running.ask("GET", "/health/live")[0] == 200


def test_a_gateway_that_stops_says_how_far_it_came(mortal: Running) -> None:
    with mortal.connect() as connection, connection.makefile("rb") as file:
        connection.sendall(
            b"POST /tasks/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(line(1)), line(1))
        )
        while b'"index":0' not in file.readline():
            pass
        mortal.process.terminate()
        wait_until(lambda: refuses(mortal), "nobody is let in any more")
        connection.sendall(b"%x\r\n%b\r\n" % (len(line(2)), line(2)))
        rest = file.read()
    assert b"this gateway stops" in rest
    assert b'"complete"' not in rest
    wait_until(lambda: mortal.process.poll() is not None, "it ended")
