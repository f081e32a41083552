"""A handler's output holds up nothing when it is not read."""

from __future__ import annotations

import io
import os
import select
import threading
from typing import Any, cast

from firmq.worker.executors import standard_streams
from firmq.worker.executors.standard_streams import _File


def test_what_a_full_pipe_does_not_take_is_dropped_and_counted() -> None:
    reader, writer = os.pipe()
    file = _File(writer)
    assert file.write(b"a" * (1 << 20)) == 1 << 20
    assert file.write(b"b" * 100) == 100, "a second write does not wait either"
    taken = 0
    while select.select([reader], [], [], 0)[0]:
        taken += len(os.read(reader, 1 << 16))
    file.write(b"the end")
    said = os.read(reader, 1000).decode()
    assert f"({(1 << 20) + 100 - taken} bytes of output were dropped" in said
    assert said.endswith("the end")


def test_a_reader_that_is_only_slow_gets_everything() -> None:
    reader, writer = os.pipe()
    file = _File(writer)
    if not (pid := os.fork()):
        os.close(writer)
        count = 0
        while data := os.read(reader, 1 << 16):
            count += len(data)
        os._exit(count != 300_000)
    file.write(b"c" * 300_000)
    os.close(writer)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_reader_that_is_gone_fails_no_write() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert _File(writer).write(b"lost") == 4
    assert standard_streams._PATIENCE_MS < 750, "or the loop of an executor would count as blocked"


def test_threads_print_at_the_same_time() -> None:
    reader, writer = os.pipe()
    stream = io.TextIOWrapper(cast("Any", _File(writer)), write_through=True)
    failed: list[BaseException] = []

    def talk() -> None:
        try:
            for _ in range(500):
                print("word", file=stream)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=talk) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if select.select([reader], [], [], 0.05)[0]:
            os.read(reader, 1 << 16)
    assert failed == []
