"""FastAPI support: a lifespan that opens a client, and the dependency `Queue`, which is this client.

from fastapi import FastAPI
from firmq.fastapi import Queue, lifespan

app = FastAPI(lifespan=lifespan)

@app.post("/orders/{order}/invoice", status_code=202)
async def create_invoice(order: int, queue: Queue) -> str:
    return (await queue.submit("send-invoice", {"order": order})).task_id
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, cast

from fastapi import Depends, FastAPI
from starlette.requests import HTTPConnection

from firmq.shared.client import AsyncClient, Client
from firmq.worker.handlers.default_client import use_client


@asynccontextmanager
async def lifespan(app: FastAPI, url: str | None = None, api_key: str | None = None) -> AsyncIterator[None]:
    """Opens a client of the gateway at `url`, else FIRMQ_URL, for the time that the app runs.

    It is `app.state.firmq`. `submit_async` of handlers uses it, and `submit` a client for threads of the same
    gateway, unless `use_client` has chosen others before. Raises ValueError as AsyncClient does.
    """
    async with AsyncClient(url, api_key=api_key) as client:
        with Client(url, api_key=api_key) as client_for_threads:
            app.state.firmq = client
            before = use_client(client_for_threads, client)
            if before:
                use_client(*before)  # such as a test's
            try:
                yield
            finally:
                if not before:
                    use_client()


def get_queue(connection: HTTPConnection) -> AsyncClient:
    """Returns the client of the app that handles a request. Raises RuntimeError without the lifespan."""
    client = getattr(connection.app.state, "firmq", None)
    if client is None:
        raise RuntimeError("the app has no Firmq: create it by FastAPI(lifespan=firmq.fastapi.lifespan)")
    return cast("AsyncClient", client)


Queue = Annotated[AsyncClient, Depends(get_queue)]
"""The client of the app, as the annotation of a parameter."""
