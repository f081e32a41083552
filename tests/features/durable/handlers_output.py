"""Handlers that emit output while they run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from firmq import current_task, emit, step, task


def _wait_for(folder: str, name: str) -> None:
    while not Path(folder, name).exists():
        time.sleep(0.02)


@task("tell", max_retries=3)
def tell(folder: str, words: list[Any], fails: int = 0) -> int:
    """Emits words, the second half once a file is there, and fails so many times at its end."""
    for word in words[: len(words) // 2]:
        emit(word)
    _wait_for(folder, "go")
    for word in words[len(words) // 2 :]:
        emit(word)
    if current_task().attempt <= fails:
        raise ConnectionError("not yet")
    return len(words)


@task("tell-threads", max_retries=3, threads=True)
def tell_threads(folder: str, words: list[Any], fails: int = 0) -> int:
    """The same in a thread of an executor that runs many."""
    return tell(folder, words, fails)


@task("tell-async", max_retries=3)
async def tell_async(folder: str, words: list[Any], fails: int = 0) -> int:
    """The same in a coroutine."""
    import asyncio

    for word in words[: len(words) // 2]:
        await emit(word)
    await asyncio.to_thread(_wait_for, folder, "go")
    for word in words[len(words) // 2 :]:
        await emit(word)
    if current_task().attempt <= fails:
        raise ConnectionError("not yet")
    return len(words)


def _answer() -> None:
    emit("once")


@task("tell-once", max_retries=3)
def tell_once() -> int:
    """Emits inside of a step, and fails behind it."""
    step("answer", _answer)
    if current_task().attempt == 1:
        raise ConnectionError("not yet")
    return current_task().attempt


@task("tell-much", max_retries=0)
def tell_much(chunks: int, size: int) -> int:
    for _ in range(chunks):
        emit("x" * size)
    return chunks
