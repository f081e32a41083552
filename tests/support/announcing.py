"""Workers that only announce themselves and their task types."""

from __future__ import annotations

import json

from firmq.shared.stores import workers
from firmq.shared.stores.task_types import TaskType, pack, types_publish, unpack
from tests.support.store import Store


def announce(store: Store, worker: str, *types: TaskType, blocking: tuple[str, ...] = ()) -> None:
    """A worker that lives and has these types, some of which blocked an event loop there."""
    given = pack(types)
    about = (60, "{}", '["normal"]', '["state", "idle"]', 60, given.digest, "host", json.dumps(blocking))
    if not workers.announce(store.scripts, worker, *about):
        entries = [(each.name, version, entry) for each, version, entry in unpack(given.packed)]
        types_publish(store.scripts, given.digest, "host", True, entries)
        assert workers.announce(store.scripts, worker, *about)
