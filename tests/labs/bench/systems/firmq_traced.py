# mypy: ignore-errors
# (As its neighbours: it runs in this adapter's own environment, from the checkout.)
"""This product as in `firmq`, with tracing: every task carries a trace context, one in a hundred is recorded.

Spans go by OTLP over HTTP to a stand-in for a collector, whose processor time counts as the workers'.
"""

import os
import sys

SAMPLER = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"}
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"

from firmq.shared.config.settings import load_or_exit  # noqa: E402
from firmq.shared.http.bind import free_port  # noqa: E402
from firmq.shared.observability.tracing import Tracing  # noqa: E402
from tests.labs.bench import adapter  # noqa: E402
from tests.labs.bench.systems import firmq as plain  # noqa: E402

TITLE = "Firmq, traced"
PACKAGES = plain.PACKAGES
WORKLOADS = adapter.BY_DEFAULT

port = free_port()
os.environ.update(SAMPLER)
os.environ.setdefault(ENDPOINT, f"http://127.0.0.1:{port}")
tracing = Tracing("bench", load_or_exit())
unfinished = plain.unfinished


def workers():
    collector = {**SAMPLER, ENDPOINT: f"http://127.0.0.1:{port}", "TASK_MODULES": __name__}
    [command] = plain.workers()
    own = [f"{name}={value}" for name, value in collector.items()]
    return [[sys.executable, "-m", "tests.labs.bench.sink", str(port)], ["env", *command[1:-3], *own, *command[-3:]]]


def traced(task):
    with tracing.sending(task.subject, None) as travelling:
        return task.with_trace(travelling)


def enqueue(kind, calls):
    plain.queues.submit([traced(plain.new_task(kind, args)) for args in calls])


def submit(kind, args):
    enqueue(kind, [args])
