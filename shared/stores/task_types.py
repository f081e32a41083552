"""The registered task types: workers publish them, the gateway checks against them.

The gateway never imports a handler. It knows a type by its name and by the JSON Schema of its data, which a worker
derives from the handler's signature. During an update workers have different versions of a type, so a version is the
digest of what was published for it, and a worker names its set of versions by one more digest: nothing that Redis
or the readers already have is sent again (`_types.lua`).
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from firmq.shared.domain.clock import instant, instant_us
from firmq.shared.domain.decode import UNREADABLE, as_declared
from firmq.shared.domain.limit import Limit
from firmq.shared.domain.retry import Changes, RetryPolicy
from firmq.shared.redis.client import raw, text, translated
from firmq.shared.redis.quarantine import without_corrupt

if TYPE_CHECKING:
    from redis import Redis

    from firmq.shared.redis.scripts import Scripts

T = TypeVar("T")
RECENT = timedelta(minutes=1)
"""How recent a worker's heartbeat must be for it to count as restarting."""
_PER_CALL = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskType:
    """A published type. `timeout` is in seconds; `retry` holds the differences from the general policy.

    `concurrent` is whether an executor runs many of its tasks at a time; `queue` is where tasks wait that name none.
    `pinned_to` is the APP_VERSION of a type whose tasks stay with the version that stored their steps.

    Its limit is not included: it is declared to `shared/stores/limits.py`, where it can be changed while workers run.
    """

    name: str
    schema: Mapping[str, Any]
    description: str = ""
    timeout: float | None = None
    retry: Changes = field(default_factory=dict)
    limit: Limit | None = None
    concurrent: bool = False
    queue: str | None = None
    pinned_to: str = ""

    @property
    def entry(self) -> str:
        """Returns the published entry, as JSON."""
        named = {"queue": self.queue} if self.queue else {}
        return json.dumps({name: getattr(self, name) for name in _PUBLISHED} | named, sort_keys=True)

    @property
    def version(self) -> str:
        """Returns the version of the type; a concurrent one's ends with `+`."""
        digest = hashlib.sha256((self.entry + self.pinned_to).encode()).hexdigest()[:16]
        return digest + ("+" if self.concurrent else "")


_PUBLISHED = ("name", "schema", "description", "timeout", "retry")


class TypeSet(NamedTuple):
    """The types of one worker. `packed` is compressed for `unpack`: ten thousand schemas take a megabyte, not fifty."""

    digest: str
    packed: bytes


def pack(types: Iterable[TaskType]) -> TypeSet:
    """Returns the set of these types."""
    rows = [(each.name, each.version, each.entry, each.limit and asdict(each.limit)) for each in types]
    rows.sort(key=lambda row: row[0])
    lines = "\n".join(f"{name} {version}" for name, version, *_ in rows)
    packed = zlib.compress(json.dumps([row[1:] for row in rows]).encode(), 1)
    return TypeSet(hashlib.sha256(lines.encode()).hexdigest()[:20], packed)


def unpack(packed: bytes) -> Iterator[tuple[TaskType, str, str]]:
    """Yields each type of a set, without its schema, its version, and its entry."""
    for version, entry, limit in json.loads(zlib.decompress(packed)):
        fields = {**json.loads(entry), "schema": {}, "limit": Limit(**limit) if limit else None}
        yield TaskType(**fields, concurrent=version.endswith("+")), version, entry


class KnownSet(NamedTuple):
    """A set of a worker, whose last heartbeat was at `seen_us`."""

    versions: Mapping[str, str]
    seen_us: int
    first_us: int
    host: str
    live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The workers' versions of a type: of live workers, newest first; the last known ones where none lives."""

    name: str
    versions: tuple[str, ...]
    live: bool
    last_seen_at: datetime
    host: str

    def is_gone(self, now: datetime) -> bool:
        """Returns whether no worker has it, and none is likely to be just restarting."""
        return not self.live and now - self.last_seen_at > RECENT


def absence(offer: Offer, now: datetime) -> str:
    """Returns a message that no live worker has a type, and when one last had it."""
    return f"no live worker has this type; last seen {_ago(now - offer.last_seen_at)} ago on {offer.host or '?'}"


def _parts(items: Iterable[T], size: int = _PER_CALL) -> Iterator[list[T]]:
    left = iter(items)
    while part := list(islice(left, size)):
        yield part


def _ago(age: timedelta) -> str:
    seconds = max(0, int(age.total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


class TaskTypes:
    """The register of types, read with each `refresh`; only changes are sent."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        from firmq.shared.redis.scripts import (
            Scripts,  # not for executors, which import this module: see `redis/client.py`
        )

        self.scripts: Scripts = Scripts(redis)
        self.now = instant(0)
        self._sets: dict[str, KnownSet] = {}
        self._offers: dict[str, Offer | None] = {}
        self._entries: dict[str, str] = {}
        self._read: dict[str, TaskType | None] = {}

    def publish(self, types: Iterable[TaskType], host: str = "") -> None:
        """Stores these types as one set."""
        self.publish_set(pack(types), host)

    def publish_set(self, given: TypeSet, host: str) -> None:
        """Stores a set, a part at a time; it takes effect with the last part."""
        entries = ((each.name, version, entry) for each, version, entry in unpack(given.packed))
        with translated():
            for part in _parts(entries):
                types_publish(self.scripts, given.digest, host, False, part)
            types_publish(self.scripts, given.digest, host, True, ())

    def refresh(self) -> None:
        """Reads which workers have which types."""
        before = self._sets
        with translated():
            now_us, *found = self.scripts.call("types_read")
            rows = [(text(row[0]), (_us(row[1]), _us(row[2]), text(row[3]), bool(row[4]))) for row in found]
            new = [digest for digest, _ in rows if digest not in before]
            contents = dict(zip(new, self._contents(new), strict=True))
            sets = {
                digest: KnownSet(contents[digest] if digest in contents else before[digest].versions, *about)
                for digest, about in rows
            }
        if contents or sets.keys() != before.keys():
            self._forget(sets)
        self.now, self._sets, self._offers = instant(int(now_us)), sets, {}

    def _contents(self, digests: Sequence[str]) -> list[dict[str, str]]:
        with self.redis.pipeline(transaction=False) as pipeline:
            for digest in digests:
                pipeline.hgetall(self.scripts.keys.type_set(digest))
            rows = without_corrupt(pipeline.execute(raise_on_error=False), {})
        return [{text(name): text(version) for name, version in row.items() if name[:1] != b"@"} for row in rows]

    def _forget(self, sets: Mapping[str, KnownSet]) -> None:
        """Drops versions that are in no set any more."""
        left = {version for each in sets.values() for version in each.versions.values()}
        self._entries = {version: entry for version, entry in list(self._entries.items()) if version in left}
        self._read = {version: found for version, found in list(self._read.items()) if version in left}

    def names(self) -> list[str]:
        """Returns every known name, sorted."""
        return sorted({name for each in self._sets.values() for name in each.versions})

    def find(self, name: str) -> Offer | None:
        """Returns the offer of a type, as of the last refresh; None for an unknown type."""
        if name not in self._offers:
            self._offers[name] = self._offer(name)
        return self._offers[name]

    def _offer(self, name: str) -> Offer | None:
        having = [each for each in self._sets.values() if name in each.versions]
        if not having:
            return None
        last = max(having, key=lambda each: each.seen_us)
        live = [each for each in having if each.live]
        since = last.seen_us - RECENT.total_seconds() * 1_000_000
        offered = live or [each for each in having if each.seen_us >= since]
        newest_first = sorted(offered, key=lambda each: -each.first_us)
        return Offer(
            name=name,
            versions=tuple(dict.fromkeys(each.versions[name] for each in newest_first)),
            live=bool(live),
            last_seen_at=instant(last.seen_us),
            host=last.host,
        )

    def served_by(self, name: str, workers: Sequence[str]) -> list[str]:
        """Returns the given workers that have a type, as of the last refresh."""
        if not workers:
            return []
        with translated():
            digests = self.redis.hmget(self.scripts.keys.TYPES_OF, list(workers))
        sets = {digest for digest, known in self._sets.items() if name in known.versions}
        return [each for each, digest in zip(workers, digests, strict=True) if digest and text(digest) in sets]

    def version(self, version: str) -> TaskType | None:
        """Returns the type published as this version; None where it is missing or corrupt."""
        if version not in self._read:
            if version not in self._entries:
                self._fetch([version])
            self._read[version] = _read(self._entries.get(version, ""), version)
        return self._read[version]

    def _fetch(self, versions: Sequence[str]) -> None:
        with translated():
            for part in _parts(versions):
                found = self.redis.hmget(self.scripts.keys.TYPE_VERSIONS, part)
                self._entries |= {each: text(raw(entry)) for each, entry in zip(part, found, strict=True) if entry}

    def newest(self, name: str) -> TaskType | None:
        """Returns the newest readable version of a type."""
        offer = self.find(name)
        return next(filter(None, map(self.version, offer.versions)), None) if offer else None

    def known(self) -> list[TaskType]:
        """Returns the newest version of every type, by name, as of the last refresh."""
        offers = filter(None, map(self.find, self.names()))
        self._fetch([offer.versions[0] for offer in offers if offer.versions[0] not in self._entries])
        return [found for name in self.names() if (found := self.newest(name))]

    def all(self) -> list[TaskType]:
        """Returns the newest version of every type, by name, as of now."""
        self.refresh()
        return self.known()


def _read(entry: str, version: str) -> TaskType | None:
    try:
        found = replace(as_declared(TaskType(**json.loads(entry))), limit=None, concurrent=version.endswith("+"))
        RetryPolicy().override(found.retry)
    except UNREADABLE:
        return None
    return found


def _us(score: bytes) -> int:
    """Returns a score in microseconds; a score outside the range of dates becomes the nearest date."""
    return instant_us(instant(float(score)))


def types_publish(
    scripts: Scripts, digest: str, host: str, last: bool, entries: Iterable[tuple[str, str, str]]
) -> None:
    """Stores a part of a set of task types: name, version and entry of each."""
    scripts.call("types_publish", digest, host, "1" if last else "", *(part for entry in entries for part in entry))


def types_waiting(scripts: Scripts) -> list[tuple[str, int, int]]:
    """Returns types whose tasks wait for a suitable worker: how many, and since when (µs)."""
    return [(text(each[0]), int(each[1]), _us(each[2])) for each in scripts.call("types_waiting")]
