"""Idempotency: a request repeated with the same Idempotency-Key has no second effect.

One task is stored in the same step as its key, without a gap between the two. A request of many tasks takes several
steps: it takes the key for a while; if it dies in the middle, a repetition of the request resumes it. The ids of its
tasks are made from a seed that is stored with the key, so each is stored once.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from firmq.shared.domain.clock import to_us
from firmq.shared.domain.task import in_base32
from firmq.shared.errors import KeyBelongsToAnother, RequestInProgress
from firmq.shared.redis.client import raw, text, translated
from firmq.shared.stores.queues import Submitted, is_plain, read_submitted, submit_arguments

if TYPE_CHECKING:
    from firmq.shared.domain.task import NewTask
    from firmq.shared.redis.scripts import Scripts, Steps

SILENCE = timedelta(seconds=10)
"""How long a request of several steps may be silent before a repetition resumes it."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request: its key (with its client, where known) and a fingerprint of the rest."""

    digest: str
    fingerprint: str

    @classmethod
    def of(cls, client: str, key: str, address: str, body: bytes) -> Request:
        """Returns the request; `body` must be in a canonical form."""
        mark = hashlib.sha256(f"{client}\n{key}".encode()).hexdigest()
        return cls(mark, hashlib.sha256(address.encode() + b"\n" + body).hexdigest())


@dataclass(frozen=True, slots=True)
class Begun:
    """A request of several steps that this process carries out; `fresh` when it was not begun before."""

    request: Request
    who: str
    seed: str
    fresh: bool = True
    selected: list[str] | None = None
    """The tasks that it, or an earlier repetition, has selected."""


class Idempotency:
    """The keys of requests, each kept for a time."""

    def __init__(self, scripts: Scripts, keep: timedelta, bounds: str = "0") -> None:
        """`bounds` as in `Queues`."""
        self.scripts = scripts
        self.keep = keep
        self.bounds = bounds

    def submit(self, request: Request, task: NewTask) -> tuple[Submitted, bool]:
        """Stores a task, or returns the outcome of the first request with this key; and whether it was repeated.

        Raises KeyBelongsToAnother, or RequestInProgress.
        """
        with translated():
            return self.scripts.run_accepted(self.submission(request, task))

    def submission(self, request: Request, task: NewTask) -> Steps[tuple[Submitted, bool]]:
        """Yields the script calls of `submit`: the shorter script first for a task without relations, where it may."""
        about = (request.digest, request.fingerprint, to_us(self.keep) // 1000, self.bounds)
        arguments, stored = submit_arguments(task), None
        if is_plain(arguments):
            stored = yield "submit_one_once", (*about, *arguments[:-1])
        what, task_id, said = stored or (yield "submit_once", (*about, *arguments))
        _check(text(what), b"1")
        return read_submitted(text(task_id), said), text(what) == "again"

    def first_task(self, request: Request) -> Submitted | None:
        """Returns the outcome of the first request with this key, if it was this one."""
        task_id, said = self._kept(request, "task", "answer")
        return read_submitted(text(task_id), _as_stored(json.loads(said))) if task_id and said else None

    def first_answer(self, request: Request) -> bytes | None:
        """Returns the answer to a request of several steps, if it was this one and has ended."""
        seed, answer = self._kept(request, "seed", "answer")
        return zlib.decompress(raw(answer)) if seed and answer else None

    def _kept(self, request: Request, *fields: str) -> list[bytes | str | None]:
        with translated():
            key = self.scripts.keys.idempotency(request.digest)
            mark, *kept = self.scripts.redis.hmget(key, "fingerprint", *fields)
        return kept if mark and text(mark) == request.fingerprint else [None] * len(fields)

    def begin(self, request: Request, *, stays: bool = False) -> Begun | bytes:
        """Takes a request of several steps, to be carried out from here; or returns its first answer.

        With `stays` its tasks belong to this store. Raises KeyBelongsToAnother, RequestInProgress or NotPlaced.
        """
        return self._begin(request, secrets.token_hex(16), new_seed(self.scripts.mark), stays=stays)

    def go_on(self, begun: Begun) -> None:
        """Keeps the request alive; must be called every few seconds.

        Raises RequestInProgress when another process has taken it over after a silence.
        """
        self._begin(begun.request, begun.who, begun.seed)

    def select(self, begun: Begun, ids: Sequence[str]) -> None:
        """Stores the tasks that the request has selected, for its repetitions. Raises as `go_on`."""
        self._begin(begun.request, begun.who, begun.seed, selected=ids)

    def end(self, begun: Begun, answer: bytes) -> None:
        """Stores the answer."""
        with translated():
            request_end(self.scripts, begun.request.digest, begun.who, zlib.compress(answer))

    def pause(self, begun: Begun) -> None:
        """Lets a repetition of the request resume it at once, when some of it could not be taken."""
        with suppress(RequestInProgress):
            self._begin(begun.request, begun.who, begun.seed, silence=timedelta(0))

    def forget(self, begun: Begun) -> None:
        """Frees the key of a request that was refused as a whole, unless some of it was stored before."""
        if not begun.fresh:
            self.pause(begun)
            return
        with translated():
            request_end(self.scripts, begun.request.digest, begun.who, b"")

    def _begin(
        self,
        request: Request,
        who: str,
        seed: str,
        silence: timedelta = SILENCE,
        selected: Sequence[str] | None = None,
        *,
        stays: bool = True,
    ) -> Begun | bytes:
        with translated():
            what, [about, *before] = request_begin(
                self.scripts, request.digest, request.fingerprint, who, silence, self.keep, seed, selected, stays=stays
            )
        _check(what, about)
        if what == "again":
            return zlib.decompress(about)
        known = json.loads(before[0]) if before else None
        return Begun(request, who, text(about), fresh=what == "begun", selected=known)


def task_id(seed: str, number: int | str) -> str:
    """Returns the id of the task at this place (or of this name) of a request with this seed."""
    head, _, rest = seed.partition("-")
    rest, _, mark = rest.partition("-")
    digest = hashlib.sha256(f"{rest}:{number}".encode()).digest()
    return head + in_base32(int.from_bytes(digest[:10]), 80) + mark


def _as_stored(said: Any) -> bytes | list[bytes]:
    """Returns the answer of `submit.lua` from its JSON."""
    return said.encode() if isinstance(said, str) else [each.encode() for each in said]


def _check(what: str, about: bytes) -> None:
    if what == "other":
        raise KeyBelongsToAnother()
    if what == "busy":
        raise RequestInProgress(seconds=int(about))


def new_seed(mark: str = "") -> str:
    """Returns the first ten characters of ids, which hold the time, the seed of the rest, and the suffix."""
    head = in_base32(time.time_ns() // 1_000_000, 50)
    return f"{head}-{secrets.token_hex(16)}{'-' if mark else ''}{mark}"


def request_begin(
    scripts: Scripts,
    digest: str,
    fingerprint: str,
    who: str,
    silence: timedelta,
    keep: timedelta,
    seed: str,
    selected: Sequence[str] | None = None,
    *,
    stays: bool = True,
) -> tuple[str, list[bytes]]:
    """Takes a multi-step request's key; returns begun or resumed (the seed), again (the answer), busy, other.

    The selection of a resumed request follows the seed.
    """
    times = (to_us(silence), to_us(keep) // 1000)
    known = "" if selected is None else json.dumps(selected)
    what, *about = scripts.call("request_begin", digest, fingerprint, who, *times, seed, known, int(stays))
    return text(what), about


def request_end(scripts: Scripts, digest: str, who: str, answer: bytes) -> bool:
    """Stores the answer of such a request; an empty one frees its key. Returns whether it was still ours."""
    return bool(scripts.call("request_end", digest, who, answer))
