"""An executor's process: it runs handlers for as long as its worker lives.

It has no connection to Redis, unless handlers use locks or steps. Tasks arrive through one pipe and outcomes leave by
another (`firmq.worker.executors.ipc`); the worker holds the leases, so a handler that is stuck in C code loses only
its own time limit.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import sys

from firmq.shared.config.settings import Settings, load
from firmq.shared.observability import logs
from firmq.shared.observability.instrumentation import trace_calls, trace_redis
from firmq.shared.stores.task_types import pack
from firmq.worker import start_hooks
from firmq.worker.executors import ipc, own_signals, standard_streams
from firmq.worker.executors.attempt import log_context, traceparent_of_current_task
from firmq.worker.executors.concurrent import ConcurrentExecutor
from firmq.worker.executors.ipc import ExecutorEnds
from firmq.worker.executors.log_capture import LogCapture
from firmq.worker.executors.operating_system import die_with_parent
from firmq.worker.executors.serial import SerialExecutor
from firmq.worker.executors.threads import inherit_context
from firmq.worker.handlers import registry
from firmq.worker.handlers.hooks import HOOKS, ExecutorContext
from firmq.worker.handlers.registry import HandlerError

log = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """`python -m firmq.worker.executors.child KIND WORKER PARENT-PID FD,FD,FD FILES`; started by the worker."""
    kind, worker, parent, ends = arguments[0], arguments[1], int(arguments[2]), ExecutorEnds.from_argument(arguments[3])
    die_with_parent(parent)
    own_signals.leave_to_worker()
    own_signals.keep_from_forks()
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(arguments[4]), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    standard_streams.never_fail()
    settings = load()
    logs.configure(
        "worker",
        settings.log_level,
        settings.log_format,
        instance=worker,
        app_version=settings.app_version,
        export=settings.log_export,
        context=log_context,
    )
    try:
        handlers = registry.load(settings.handler_modules).handlers
    except HandlerError as error:
        if kind == ipc.SERIAL:  # every worker has one: once is enough
            print(registry.explain(error), file=sys.stderr)
        return 2
    make = ConcurrentExecutor if kind == ipc.CONCURRENT else SerialExecutor
    executor = make(handlers, settings, worker, ends)
    logging.getLogger().addHandler(LogCapture())
    inherit_context()
    tracing = executor.attempts.spans.tracing
    trace_redis(tracing)
    trace_calls(tracing, traceparent_of_current_task)
    types = [handler.published(settings) for handler in handlers.values()]
    about = ExecutorContext(worker=worker, kind=kind, slots=executor.slots)
    _warn_of_worker_hooks(settings)
    try:
        start_hooks.run_started(HOOKS.executor_started, about, executor.run_coroutine, settings.hook_timeout)
    except start_hooks.HookFailed:
        logging.shutdown()
        os._exit(2)  # threads of earlier hooks must not keep it alive
    own_signals.leave_to_worker()  # a module or a hook may have taken them
    executor.attempts.send((ipc.HELLO, *pack(types)))
    gc.freeze()  # loaded objects stay: a full collection among tasks would hold up all of them for 20 ms
    executor.run()
    start_hooks.run_stopping(HOOKS.executor_stopping, about, executor.run_coroutine, settings.hook_timeout)
    return 0


def _warn_of_worker_hooks(settings: Settings) -> None:
    if not settings.worker_hook_modules:
        for hook in (*HOOKS.worker_started, *HOOKS.worker_stopping):
            log.warning("%s does not run: name its module in WORKER_HOOK_MODULES", hook)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
