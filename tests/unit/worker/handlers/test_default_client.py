"""Which client typed submission uses."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from firmq import Queue
from firmq.shared.client import Accepted, AsyncClient, Client, ClientError, TaskState
from firmq.worker.handlers import default_client
from firmq.worker.handlers.default_client import (
    async_client_at,
    client_at,
    client_for_asyncio,
    client_for_threads,
    use_client,
)

ACCEPTED = Accepted(task_id="1", status=TaskState.PENDING, type="it", queue="normal")


class InThread:
    """A client that tells in which thread it was called."""

    thread: threading.Thread | None = None

    def submit(self, task_type: str, data: Any = None, **options: Any) -> Accepted:
        self.thread = threading.current_thread()
        return ACCEPTED


class InProcess(InThread):
    in_process = True


@pytest.fixture(autouse=True)
def no_client(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("FIRMQ_URL", raising=False)
    before = use_client()
    yield
    use_client(*before)


async def submit_async(client: Any = None) -> Accepted:
    return await client_for_asyncio(client).submit("it")


async def for_asyncio() -> Any:
    return client_for_asyncio(None)


def test_without_any_client_the_error_says_what_to_set() -> None:
    with pytest.raises(ClientError, match=r"set FIRMQ_URL .* or call use_client"):
        client_for_threads(None)
    with pytest.raises(ClientError, match=r"set FIRMQ_URL .* or call use_client"):
        asyncio.run(for_asyncio())


def test_the_error_about_a_url_does_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRMQ_URL", "ftp://me:secret@shop")
    with pytest.raises(ClientError, match="begins with none of http://, https://, redis://") as error:
        client_for_threads(None)
    assert "secret" not in str(error.value)


def test_the_environment_gives_one_client_per_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRMQ_URL", "http://shop:8000")
    with ThreadPoolExecutor(8) as threads:
        clients = set(threads.map(lambda _: client_for_threads(None), range(64)))
    [client] = clients
    assert isinstance(client, Client)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert client_for_threads(None) is not client


def test_the_environment_gives_one_client_per_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def two() -> tuple[Any, Any]:
        return client_for_asyncio(None), client_for_asyncio(None)

    monkeypatch.setenv("FIRMQ_URL", "http://shop:8000")
    first, second = asyncio.run(two())
    assert first is second
    assert isinstance(first, AsyncClient)

    async def beside() -> tuple[Any, Any]:
        return client_for_asyncio(None), await asyncio.to_thread(asyncio.run, for_asyncio())

    one, other = asyncio.run(beside())
    assert one is not other


def test_programs_that_run_a_loop_for_each_call_keep_no_clients_of_the_closed_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FIRMQ_URL", "http://shop:8000")
    monkeypatch.setattr(default_client, "_of_loop", {})
    assert len({id(asyncio.run(for_asyncio())) for _ in range(5)}) == 1


@pytest.mark.parametrize(
    "url", ["redis://shop", "rediss://shop", "unix:///run/redis.sock", "redis+sentinel://shop/main"]
)
def test_every_address_of_redis_gives_a_queue(url: str) -> None:
    assert isinstance(client_at(url), Queue)


def test_another_url_gives_another_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRMQ_URL", "http://shop:8000")
    first = client_for_threads(None)
    monkeypatch.setenv("FIRMQ_URL", "http://other:8000")
    assert client_for_threads(None) is not first


def test_urls_and_api_keys_have_clients_of_their_own() -> None:
    async def two() -> list[Any]:
        return [async_client_at("http://shop:8000", "key"), async_client_at("http://shop:8000", "key")]

    keyed = client_at("http://shop:8000", "key")
    assert client_at("http://shop:8000", "key") is keyed is not client_at("http://shop:8000")
    assert len(set(asyncio.run(two()))) == 1
    assert isinstance(keyed, Client)
    assert keyed.transport.headers["Authorization"] == "Bearer key"


def test_a_client_that_is_set_stands_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRMQ_URL", "http://shop:8000")
    ours, ours_async = Client(), AsyncClient()
    assert use_client(ours, ours_async) == ()
    assert client_for_threads(None) is ours
    assert asyncio.run(for_asyncio()) is ours_async
    assert use_client() == (ours, ours_async)
    assert client_for_threads(None) is not ours


def test_a_client_that_is_given_stands_before_one_that_is_set() -> None:
    use_client(Client())
    given = Client()
    assert client_for_threads(given) is given


def test_submit_refuses_a_client_for_asyncio() -> None:
    with pytest.raises(TypeError, match=r"submit\(\) cannot await AsyncClient: use `await ….submit_async\(\)`"):
        client_for_threads(AsyncClient())


def test_a_client_for_threads_does_not_block_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "asgiref.sync", raising=False)  # with Django, another thread has the connections
    blocking, direct = InThread(), InProcess()
    assert asyncio.run(submit_async(blocking)) == asyncio.run(submit_async(direct)) == ACCEPTED
    assert direct.thread is threading.main_thread() is not blocking.thread


def test_nothing_that_submits_is_loaded_before_the_first_submission() -> None:
    others = ["firmq.shared.client", "asyncio", "redis", "http.client"]
    code = f"import sys; from firmq import task, use_client; print([*filter(sys.modules.get, {others})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
