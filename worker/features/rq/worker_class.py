"""A worker class for RQ's own command line: `rq worker -w firmq.rq.Worker high default --with-scheduler`.

It starts a worker of this system for the queues, as a child process, with the options of RQ; and a housekeeper, one for
all workers of a machine, which moves due retries and ends leases of dead workers. Options without a meaning here are
refused, never ignored.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import IO, Any
from urllib.parse import quote, urlencode

import rq
from redis import Redis, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import RedisError
from rq.command import parse_payload
from rq.job import Job
from rq.queue import Queue
from rq.serializers import DefaultSerializer, JSONSerializer

from firmq.shared.child_processes import dies_with_us
from firmq.shared.config.redis_address import completed
from firmq.shared.config.settings import load
from firmq.shared.errors import FirmqError
from firmq.shared.redis.client import connect
from firmq.shared.redis.scripts import Scripts
from firmq.worker.feature import NAME
from firmq.worker.features.rq.feature import rq_key_prefix
from firmq.worker.features.rq.terms import Terms

_UNBOUNDED = str(10 * 365 * 24 * 3600)
"""Seconds: a warm shutdown waits for the running job, however long that takes."""
_OF_DJANGO = "firmq.django.handlers"
"""Sets Django up in executors."""
_OF_TLS = {"ssl_ca_certs": None, "ssl_certfile": None, "ssl_keyfile": None, "ssl_cert_reqs": "required"}
"""Options of TLS that an address can carry, and the default of each."""
_STOPS = {"stop-job": "stopped", "stop-execution": "stopped", "kill-horse": "failed"}
"""Commands that end a running job, and the status that it gets."""
_LOOK = 0.5
"""Seconds between two looks at whether this process is the one that runs the housekeeper."""
_FORCED_AFTER = 1.0
"""Seconds within which a second signal is the same Ctrl-C, passed on by a pool: as RQ's worker has it."""


class Worker(rq.Worker):
    """RQ's worker on the crash-safe engine."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Takes the arguments of RQ's worker. Raises ValueError for unsupported ones."""
        self._refuse(options)
        super().__init__(*arguments, **options)
        if options.get("prepare_for_work", True):
            self._address = address_of(self.connection)
            if self.job_class is not Job or self.queue_class is not Queue:
                raise ValueError("firmq.rq.Worker has no job_class or queue_class: it runs RQ's own Job and Queue")
            if self.serializer not in (DefaultSerializer, JSONSerializer):
                raise ValueError("firmq.rq.Worker reads RQ's DefaultSerializer and JSONSerializer only")
        self._child: subprocess.Popen[bytes] | None = None
        self._housekeeper: subprocess.Popen[bytes] | None = None
        self._asked_at = 0.0

    @staticmethod
    def _refuse(options: dict[str, Any]) -> None:
        for name, instead in (
            ("exception_handlers", "use on_failure of a job, or alerts"),
            ("work_horse_killed_handler", "a job whose process dies runs again; then on_failure is called"),
            ("disable_default_exception_handler", "failed jobs are always in the FailedJobRegistry"),
        ):
            if options.get(name):
                raise ValueError(f"firmq.rq.Worker has no {name}: {instead}")

    def work(
        self,
        burst: bool = False,
        logging_level: str | int | None = None,
        *arguments: Any,
        max_jobs: int | None = None,
        max_idle_time: int | None = None,
        with_scheduler: bool = False,
        dequeue_strategy: Any = "default",
        **formats: Any,
    ) -> bool:
        """Runs jobs until a signal or an option ends it; returns whether it took any."""
        read, write = os.pipe()
        terms = Terms(
            burst=burst,
            max_jobs=max_jobs,
            max_idle_time=max_idle_time,
            scheduler=with_scheduler,
            strategy=str(getattr(dequeue_strategy, "value", dequeue_strategy)),
            report_to=write,
        )
        level = str(logging_level or "INFO").upper()
        before = {number: signal.signal(number, self._on_stop) for number in (signal.SIGINT, signal.SIGTERM)}
        self.subscribe()  # type: ignore[no-untyped-call]
        try:
            self._child = self._start("worker", {**terms.as_variable(), NAME: self.name, "LOG_LEVEL": level}, write)
            os.close(write)
            if self._asked_at:  # before there was a process to stop
                self._child.send_signal(signal.SIGTERM)
            with open(read, "rb") as reports:
                self._wait(self._child, runs_housekeeper=not burst)
                taken = int(reports.read() or 0)
        finally:
            self.unsubscribe()  # type: ignore[no-untyped-call]
            for process in (self._child, self._housekeeper):
                self._end(process)
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._child.returncode and not (self._asked_at and self._child.returncode == -signal.SIGTERM):
            raise SystemExit(self._child.returncode)
        return taken > 0

    def handle_payload(self, message: dict[str, Any]) -> None:
        """Executes a command of RQ."""
        payload = parse_payload(message)
        if (command := payload["command"]) not in _STOPS:
            super().handle_payload(message)  # type: ignore[no-untyped-call]
            return
        job, execution = (str(payload.get(name) or "") for name in ("job_id", "execution_id"))
        if (command == "stop-job" and not job) or (command == "stop-execution" and not execution):
            return  # as RQ has it; the script would stop all jobs
        address = completed(self._address, key_prefix=rq_key_prefix(load()))
        try:
            with connect(address, name="rq-command") as redis:
                stopped = Scripts(redis).call("rq_stop", self.name, job, execution, _STOPS[command])
        except (RedisError, OSError, FirmqError) as error:  # an error would end the thread that listens
            self.log.warning("Worker %s: %s was not carried out: %s", self.name, command, error)
            return
        self.log.info("Worker %s: %s stops %d jobs", self.name, command, stopped)

    def _wait(self, child: subprocess.Popen[bytes], *, runs_housekeeper: bool) -> None:
        with _lock_file(self._address) as file:
            while True:
                try:
                    child.wait(_LOOK)
                    return
                except subprocess.TimeoutExpired:
                    if runs_housekeeper:
                        self._keep_housekeeper(file)

    def _keep_housekeeper(self, file: IO[bytes]) -> None:
        """Starts the housekeeper, unless another worker of this machine runs one for this Redis."""
        if self._housekeeper is not None and self._housekeeper.poll() is None:
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        locks = {"HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED": "true", "HOUSEKEEPER_METRICS_PORT": "0"}
        self._housekeeper = self._start("housekeeper", {"LOG_LEVEL": "WARNING", **locks})

    def _start(self, part: str, variables: dict[str, str], *files: int) -> subprocess.Popen[bytes]:
        usual = {"RQ_ALLOW": "*", "WORKER_EXECUTORS": "1", "CONCURRENT_EXECUTORS": "0", "DRAIN_GRACE": _UNBOUNDED}
        given = {
            "REDIS_URL": self._address,
            "RQ_QUEUES": ",".join(self.queue_names()),
            "RQ_PICKLE": str(self.serializer is DefaultSerializer).lower(),
            "RQ_RESULT_TTL": str(self.default_result_ttl),
            "WORKER_METRICS_PORT": "0",
            "LOG_FORMAT": "text",
            "PYTHONPATH": os.pathsep.join(each or os.getcwd() for each in sys.path),
        }
        modules = os.environ.get("TASK_MODULES", "")
        if os.environ.get("DJANGO_SETTINGS_MODULE") and _OF_DJANGO not in modules:
            given["TASK_MODULES"] = ",".join(filter(None, (_OF_DJANGO, modules)))
        return subprocess.Popen(
            [sys.executable, "-m", "firmq", part],
            env={**usual, **os.environ, **given, **variables},
            pass_fds=files,
            start_new_session=True,  # the terminal's Ctrl-C reaches this process alone, which passes it on
            preexec_fn=dies_with_us(),
        )

    def _on_stop(self, signum: int, frame: FrameType | None) -> None:
        """Lets running jobs end; a second signal returns them to their queues."""
        now = time.monotonic()
        if self._asked_at and now - self._asked_at < _FORCED_AFTER:
            return
        self.log.info("Worker %s: %s shut down requested", self.name, "cold" if self._asked_at else "warm")
        self._asked_at = self._asked_at or now
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)

    @staticmethod
    def _end(process: subprocess.Popen[bytes] | None) -> None:
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def address_of(connection: Redis) -> str:
    """Returns the URL of a connection. Raises ValueError where there is none, as with Sentinel."""
    pool: Any = connection.connection_pool
    about = pool.connection_kwargs
    secret = (
        f"{quote(about.get('username') or '', safe='')}:{quote(about['password'], safe='')}@"
        if about.get("password")
        else ""
    )
    if issubclass(pool.connection_class, UnixDomainSocketConnection):
        return f"unix://{secret}{about['path']}?{urlencode({'db': about.get('db') or 0})}"
    if not about.get("host"):
        raise ValueError("firmq.rq.Worker needs a connection to one address: for Sentinel start `firmq worker --rq`")
    host = f"[{about['host']}]" if ":" in about["host"] else about["host"]
    scheme = "rediss" if issubclass(pool.connection_class, SSLConnection) else "redis"
    files = {name: about[name] for name, usual in _OF_TLS.items() if about.get(name, usual) != usual}
    options = f"?{urlencode(files)}" if scheme == "rediss" and files else ""
    return f"{scheme}://{secret}{host}:{about.get('port') or 6379}/{about.get('db') or 0}{options}"


def _lock_file(address: str) -> IO[bytes]:
    """Opens the file whose lock the worker holds that runs the housekeeper; its user's own."""
    name = hashlib.sha256(address.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"firmq-housekeeper-{os.getuid()}-{name}").open("ab")
