"""The text printed when all services are ready: addresses, and a first command to try."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from shared.local.parts import Part
from shared.local.store import Store


def banner(parts: Sequence[Part], store: Store, keys: bool = False) -> str:
    """Returns the addresses and a command that submits a task; `keys` is whether the gateway requires an API key."""
    at = {part.name: f"http://localhost:{part.port}" for part in parts}
    lines = [
        "",
        "Task Queue is running. Press Ctrl-C to stop; tasks are kept.",
        "",
        f"  REST API    {at['gateway']}    browse it at {at['gateway']}/docs",
        f"  Dashboard   {at['dashboard']}",
        f"  Metrics     {at['gateway']}/metrics    {at['worker']}/metrics    {at['housekeeper']}/metrics",
        f"  Redis       {store.description}",
        *_rq_hint(store),
        "",
        "Submit a task:",
        _submission(at["gateway"], keys),
        "",
    ]
    return "\n".join(lines) + "\n"


def _submission(gateway: str, keys: bool) -> str:
    body = json.dumps({"type": "process", "data": "some text"})
    key = ' -H "Authorization: Bearer $KEY"' if keys else ""
    return f"  curl -X POST {gateway}/tasks -H 'Content-Type: application/json'{key} -d '{body}'"


def _rq_hint(store: Store) -> list[str]:
    """Returns a command that connects RQ's tools to the embedded server without showing its password."""
    if store.url_file is None:
        return []
    rq = Path(sys.executable).with_name("rq")
    return [f'              {_as_typed(rq)} info --url "$(cat {_as_typed(store.url_file)})"']


def _as_typed(path: Path) -> str:
    """A path as one would type it in this folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
