# mypy: ignore-errors
# (Dramatiq is installed in this adapter's own environment only.)
"""Dramatiq with Redis: two processes of eight threads, its default and what its documentation shows.

Results need the Results middleware and its Redis backend. The prefetch is the default, twice the threads.
"""

import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from tests.labs.bench import adapter, handlers

TITLE = "Dramatiq (threads)"
PACKAGES = ("dramatiq", "redis")
WORKLOADS = (*adapter.BY_DEFAULT, *adapter.WAITING)

broker = RedisBroker(url=adapter.THREADS_URL)
if adapter.RESULTS_KEPT:
    backend = RedisBackend(url=adapter.THREADS_URL)
    broker.add_middleware(Results(backend=backend, store_results=True, result_ttl=adapter.KEEP_SECONDS * 1000))
dramatiq.set_broker(broker)


def actor(kind, function):
    """Without a result store Dramatiq warns about every returned value, so there the actor returns none."""
    if adapter.RESULTS_KEPT:
        return dramatiq.actor(function, actor_name=kind)

    def silent(*args):
        function(*args)

    return dramatiq.actor(silent, actor_name=kind)


actors = {kind: actor(kind, function) for kind, function in handlers.BLOCKING.items()}


def workers(command=(sys.executable, "-m", "dramatiq")):
    module, count, threads = "tests.labs.bench.systems.dramatiq", str(adapter.PROCESSES), str(adapter.SLOTS or 8)
    return [[*command, module, "--processes", count, "--threads", threads]]


def enqueue(kind, calls):
    for args in calls:
        submit(kind, args)


def submit(kind, args):
    actors[kind].send(*args)


def unfinished(enqueued):
    """A message leaves this hash when it is acknowledged, which is after its result was stored."""
    return broker.client.hlen("dramatiq:default.msgs")
