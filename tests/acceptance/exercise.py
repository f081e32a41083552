"""Makes a running system have something of everything."""

from __future__ import annotations

import httpx


def exercise(api: httpx.Client) -> None:
    """Makes something of everything happen, so that every metric has a value."""
    for data in ("some words", ""):
        api.post("/tasks", json={"type": "process", "data": data, "max_retries": 1}).raise_for_status()
    done = api.post("/tasks", json={"type": "calculate", "data": "1/0", "max_retries": 0}).json()["task_id"]
    api.get(f"/tasks/{done}/result", params={"wait": 10}).raise_for_status()
