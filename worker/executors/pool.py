"""The executor pool of one worker: starts and replaces executors."""

from __future__ import annotations

import errno
import logging
import resource
import selectors
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from firmq.shared.config.settings import Settings
from firmq.shared.domain.http_task import HTTP_TYPE
from firmq.shared.domain.task import WEBHOOK_TYPE
from firmq.shared.stores.task_types import TaskType, TypeSet, unpack
from firmq.worker.engine.link import Due
from firmq.worker.executors import ipc
from firmq.worker.executors.process import PATIENCE, ExecutorProcess
from firmq.worker.executors.watchdog import Watchdog

log = logging.getLogger(__name__)

_START_TRIES = 3
RELOAD_GRACE = 2.0
"""Seconds for which tasks may continue after a reload in executors with the previous handlers."""
_LONGEST_PAUSE = 5.0
"""Seconds until the next try after several executors of a kind have failed to start."""
_NO_ROOM = 2.0
"""Seconds until the next try after the system ran out of files or processes."""


class CannotStart(Exception):
    """Executors die before they are ready; their standard error has the reason."""


class ExecutorPool:
    """Starts executors, replaces dead or large ones, and holds the task types that they registered."""

    def __init__(
        self,
        worker: str,
        settings: Settings,
        selector: selectors.BaseSelector,
        heartbeat_due: Due,
        watchdog: Watchdog | None = None,
    ) -> None:
        """`selector` gets the pipes of executors; `heartbeat_due` is set when there are other types to publish."""
        self.worker = worker
        self.settings = settings
        self.selector = selector
        self.heartbeat_due = heartbeat_due
        self.watchdog = watchdog
        self.members: list[ExecutorProcess] = []
        self.types: Mapping[str, TaskType] = {}
        self.type_set: TypeSet | None = None
        self.spawning = True
        self.concurrent_wanted = False
        """Whether there are tasks that run in concurrent executors, or will be."""
        self.isolating = False
        """Whether tasks that may have crashed a concurrent executor wait for one without other tasks."""
        self.blocking: dict[str, str] = {}
        """Types that blocked the event loop of a concurrent executor, and where: they run one at a time."""
        # A result is sent as base64, a log line once by itself and once in JSON, where a character may take 12 bytes.
        self._longest_frame = ipc.MOST_BYTES + 2 * settings.max_result_bytes + 16 * settings.max_log_bytes
        self.generation = 0
        """The number of reloads; an executor of a lower generation has earlier handlers."""
        self._reload_due = False
        self._failed_starts = Counter[str]()
        """Starts that failed in a row, of each kind."""
        self._not_before = dict.fromkeys((ipc.SERIAL, ipc.CONCURRENT), 0.0)
        self._no_room = ""

    def __iter__(self) -> Iterator[ExecutorProcess]:
        return iter(self.members)

    @property
    def ready(self) -> bool:
        """Returns whether any executor can take a task."""
        return any(member.ready for member in list(self.members))

    @property
    def trouble(self) -> str | None:
        """Returns why tasks, or one kind of tasks, cannot run here."""
        if self._no_room:
            return f"it cannot start executors: {self._no_room}"
        for kind, failed in list(self._failed_starts.items()):
            if failed >= _START_TRIES and not self._has_ready(kind):
                return f"its {kind} executors end before they are ready: its log has the reason"
        return None

    def _has_ready(self, kind: str) -> bool:
        return any(member.ready and member.kind == kind for member in list(self.members))

    def reload(self) -> None:
        """Replaces the executors, once one is ready that has reloaded the handlers; may be called from a signal."""
        self._reload_due = True

    def spawn_missing(self) -> None:
        """Starts missing executors; retries a little later when the system has no resources."""
        if not self.spawning:
            return
        try:
            if self._reload_due:
                self._spawn_reloaded()
            self._spawn(ipc.SERIAL, self.settings.executors, slots=1)
            if self.concurrent_wanted:
                wanted = self.settings.concurrent_executors + int(self.isolating)
                self._spawn(ipc.CONCURRENT, wanted, self.settings.slots)
            self._no_room = ""
        except OSError as error:
            if error.errno == errno.EMFILE and self.type_set is None:  # none has ever been ready
                files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
                raise CannotStart(
                    f"no executor can be started: this process may open {files} files only; raise the limit "
                    "(ulimit -n, LimitNOFILE= of systemd, ulimits of Docker)"
                ) from error
            self._no_room = str(error)
            self._not_before = dict.fromkeys(self._not_before, time.monotonic() + _NO_ROOM)
            log.error("executor not started (%s), retrying in %g s", error, _NO_ROOM)

    def _spawn_reloaded(self) -> None:
        """Starts an executor of each kind with the handlers of now. Raises OSError."""
        self.generation += 1
        self._failed_starts.clear()
        for kind, slots in dict.fromkeys((member.kind, member.slots) for member in self.members):
            self._add(kind, slots)
        self._reload_due = False

    def _spawn(self, kind: str, wanted: int, slots: int) -> None:
        """Starts missing executors of a kind. Raises OSError."""
        if time.monotonic() < self._not_before[kind]:
            return
        members = [member for member in self.members if member.kind == kind]
        # When each task ends its executor, slowly ending ones must not accumulate.
        leaving = [member for member in members if member.retiring and not member.assigned]
        for member in leaving[: -wanted or None]:
            member.kill("it was replaced and did not end")
        staying = [member for member in members if not member.retiring]
        for member in staying[wanted:]:
            if member.idle:
                member.retire()
        for _ in range(wanted - len(staying)):
            self._add(kind, slots)

    def _add(self, kind: str, slots: int) -> None:
        """Starts an executor. Raises OSError."""
        member = ExecutorProcess(self.worker, kind, slots, self._longest_frame)
        member.generation = self.generation
        self.members.append(member)
        if self.watchdog:
            self.watchdog.check_soon()
        self.selector.register(member.events, selectors.EVENT_READ)

    def is_concurrent(self, task_type: str) -> bool:
        """Returns whether tasks of this type run in concurrent executors here."""
        known = self.types.get(task_type)
        allowed = self.settings.concurrent_executors > 0 and task_type not in self.blocking
        return bool(known and known.concurrent and allowed)

    def on_hello(self, member: ExecutorProcess, hello: TypeSet) -> None:
        """Handles an executor that is ready, with the types that it registered.

        The latest types count: if the code changed under a worker, executors with the earlier ones are replaced.
        """
        member.ready = True
        del self._failed_starts[member.kind]
        if member.retiring:
            return
        self._retire_earlier(member.generation)
        if self.type_set and self.type_set.digest == hello.digest:
            return
        self.types = {each.name: each for each, *_ in unpack(hello.packed)}
        # For calls of ours alone one is started when the first of them comes.
        waiting = any(each.concurrent for each in self.types.values() if each.name not in (WEBHOOK_TYPE, HTTP_TYPE))
        self.concurrent_wanted = self.concurrent_wanted or waiting
        if self.type_set:
            log.info("executor %d has other task types: replacing earlier executors", member.pid)
            for other in self.members:
                if other is not member and other.ready and not other.retiring:
                    other.retire()
        self.type_set = hello
        self.heartbeat_due.set()

    def _retire_earlier(self, generation: int) -> None:
        """Retires the executors of earlier generations, which have other handlers."""
        earlier = [each for each in self.members if each.generation < generation and not each.retiring]
        if not earlier:
            return
        log.info("handlers reloaded: replacing %d executors", len(earlier))
        self.blocking.clear()
        for each in earlier:
            each.retire(within=RELOAD_GRACE)

    def lost(self, member: ExecutorProcess) -> None:
        """Handles a dead executor. Raises CannotStart when several in a row were never ready and no other is."""
        self._reap(member)
        self.members.remove(member)
        if member.ready or member.killed_because or member.was_ended_by_watchdog():
            return
        if member.kind == ipc.SERIAL and any(
            each.generation < member.generation for each in self.members if each.ready
        ):
            log.error("handlers not reloaded: the earlier ones stay in use until the next reload")
        self._failed_starts[member.kind] += 1
        pause = min(_LONGEST_PAUSE, 0.5 * self._failed_starts[member.kind])
        self._not_before[member.kind] = time.monotonic() + pause
        if self._failed_starts[member.kind] < _START_TRIES or self._has_ready(member.kind):
            return
        status = member.process.returncode
        if not self.ready:
            raise CannotStart(f"executors end before they are ready (status {status}): see the lines above")
        log.error("%s executors end before they are ready (status %s), retrying in %g s", member.kind, status, pause)
        self.heartbeat_due.set()

    def retire_spent(self) -> None:
        """Retires executors that ran enough tasks or grew too large."""
        limit = self.settings.executor_max_tasks
        memory = self.settings.executor_recycle_memory_bytes
        for member in self.members:
            if member.retiring or not member.ready:
                continue
            if (limit and member.done >= limit) or (memory and member.memory_bytes() > memory):
                member.spent = True
            if member.spent and self._may_retire(member):
                log.info("replacing executor %d after %d tasks", member.pid, member.done)
                member.retire()

    def replace(self, member: ExecutorProcess) -> None:
        """Retires an executor that should run no more tasks, at once if possible."""
        member.spent = True
        if self._may_retire(member):
            member.retire()

    def _may_retire(self, member: ExecutorProcess) -> bool:
        """Returns whether a replacement may be started: few concurrent ones may be ending: it takes long."""
        ending = [other for other in self.members if other.concurrent and other.retiring]
        return not member.concurrent or len(ending) < max(1, self.settings.concurrent_executors)

    def shutdown(self, patience: float = PATIENCE) -> None:
        """Lets every executor end; kills those that do not within `patience` seconds."""
        self.spawning = False
        for member in self.members:
            member.shutdown()
        until = time.monotonic() + patience
        for member in self.members:
            try:
                member.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                member.kill("the worker stops")
            self._reap(member)
        self.members.clear()
        if self.watchdog:
            self.watchdog.close()

    def _reap(self, member: ExecutorProcess) -> None:
        self.selector.unregister(member.events)
        member.reap()
