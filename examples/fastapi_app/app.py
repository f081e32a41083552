"""The endpoints: one creates a quote, which is a task; the others show its state, once or as it changes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

from examples.fastapi_app.demo_carriers import carriers
from examples.fastapi_app.tasks import Parcel, ask_carriers
from firmq import NotFound, Task, TaskDetail, Unavailable, Unreachable
from firmq.fastapi import Queue, lifespan

app = FastAPI(title="Shipping quotes", lifespan=lifespan)
app.include_router(carriers)


class Quote(BaseModel):
    """A quote, with a price of each carrier as soon as it is completed."""

    id: str
    status: str
    progress: float = 0
    prices: dict[str, float] | None = None


@app.post("/quotes", status_code=202)
async def create_quote(parcel: Parcel, request: Request, response: Response) -> Quote:
    """Submits a task. The location of the answer shows its state."""
    task = await ask_carriers.submit_async(parcel)
    response.headers["Location"] = str(request.url_for("get_quote", quote_id=task.task_id))
    return Quote(id=task.task_id, status=task.status)


@app.get("/quotes/{quote_id}")
async def get_quote(quote_id: str, queue: Queue) -> Quote:
    """Shows a quote."""
    return _quote(await _task(queue, quote_id))


@app.get("/quotes/{quote_id}/events")
async def watch_quote(quote_id: str, queue: Queue) -> StreamingResponse:
    """Sends the quote as a Server-Sent Event, again at each change until it has ended."""
    await _task(queue, quote_id)

    async def events() -> AsyncIterator[str]:
        async for seen in queue.watch(quote_id):
            quote = _quote(await queue.get(quote_id) if seen.status.ended else seen)
            yield f"data: {quote.model_dump_json()}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


@app.exception_handler(Unavailable)
@app.exception_handler(Unreachable)
async def unavailable(request: Request, error: Exception) -> Response:
    """Answers when the gateway cannot take a task or does not answer."""
    return JSONResponse({"detail": "no quotes at the moment"}, 503, {"Retry-After": "5"})


async def _task(queue: Queue, quote_id: str) -> TaskDetail:
    """Returns the task of a quote; other tasks of the system are not found."""
    try:
        task = await queue.get(quote_id)
    except NotFound:
        raise HTTPException(404) from None
    if task.type != "ask-carriers":
        raise HTTPException(404)
    return task


def _quote(task: Task) -> Quote:
    progress = 1 if task.status == "completed" else task.progress.fraction if task.progress else 0
    prices = task.result if isinstance(task, TaskDetail) else None
    return Quote(id=task.task_id, status=task.status, progress=progress, prices=prices)
