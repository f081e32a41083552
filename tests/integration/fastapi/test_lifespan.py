"""The lifespan and the dependency, in apps without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI

from firmq import AsyncClient, ClientError, LocalClient, use_client
from firmq.fastapi import Queue, get_queue, lifespan
from firmq.worker.handlers.default_client import client_for_asyncio, client_for_threads


@pytest.fixture(autouse=True)
def process_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No client of the environment or of another test."""
    monkeypatch.delenv("FIRMQ_URL", raising=False)
    clients = use_client()
    yield
    use_client(*clients)


def app_with(life: object) -> FastAPI:
    """An app that shows which client an endpoint gets."""
    app = FastAPI(lifespan=life)  # type: ignore[arg-type]

    @app.get("/")
    async def url(queue: Queue) -> str:
        assert isinstance(queue, AsyncClient)
        return queue.transport.url

    return app


async def answer(app: FastAPI) -> str:
    """What the endpoint answers while the app runs."""
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop.lan") as http,
    ):
        return str((await http.get("/")).json())


def test_the_client_is_that_of_the_environment_while_the_app_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRMQ_URL", "http://tasks.lan")
    assert asyncio.run(answer(app_with(lifespan))) == "http://tasks.lan"


def test_a_lifespan_of_the_app_may_open_it_with_settings_of_its_own() -> None:
    @asynccontextmanager
    async def own(app: FastAPI) -> AsyncIterator[None]:
        async with lifespan(app, "http://queue.lan", api_key="key-7"):
            assert app.state.firmq.transport.headers["Authorization"] == "Bearer key-7"
            yield

    assert asyncio.run(answer(app_with(own))) == "http://queue.lan"


def test_handlers_submit_to_the_gateway_of_the_app() -> None:
    async def scenario() -> None:
        app = FastAPI()
        async with lifespan(app, "http://tasks.lan"):
            assert client_for_asyncio(None) is app.state.firmq
            assert client_for_threads(None).transport.url == "http://tasks.lan"  # type: ignore[attr-defined]
        with pytest.raises(ClientError, match="no client to submit with"):
            client_for_asyncio(None)

    asyncio.run(scenario())


def test_a_client_that_was_chosen_before_is_kept() -> None:
    async def scenario() -> None:
        async with lifespan(FastAPI()):
            assert client_for_threads(None) is local
        assert client_for_threads(None) is local

    local = LocalClient(["tests.support.handlers"])
    use_client(local)
    asyncio.run(scenario())


def test_an_app_without_the_lifespan_is_told_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"create it by FastAPI\(lifespan=firmq\.fastapi\.lifespan\)"):
        asyncio.run(answer(app_with(None)))


def test_a_test_replaces_the_client() -> None:
    app = app_with(lifespan)
    app.dependency_overrides[get_queue] = lambda: AsyncClient("http://stand-in.lan")
    assert asyncio.run(answer(app)) == "http://stand-in.lan"
