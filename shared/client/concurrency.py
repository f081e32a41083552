"""The client's tools from threads; firmq.shared.client.aio.concurrency is the same for asyncio."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["Sleep", "Tasks", "each_of", "sleep"]

Sleep = Callable[[float], object]
sleep = time.sleep
Tasks = Iterable[Mapping[str, Any]]
each_of = iter
