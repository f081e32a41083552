"""The metrics of other parts on the gateway's page: for one machine without Prometheus.

Each part has its own /metrics, and Prometheus collects them one by one. Somebody who has just started everything on
a laptop has no Prometheus, and looks at the gateway. So the parts named in METRICS_SOURCES are asked there and then,
and the families of the product are shown too. Where Prometheus collects, the setting stays empty, or everything would
be counted twice.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import add
from urllib.error import URLError

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

FEDERATED = "X-Taskqueue-Federated"
TIMEOUT = 0.3
MOST_BYTES = 4 << 20
_TOGETHER: dict[str, Callable[[float, float], float]] = {
    "taskqueue_housekeeper_leader_term": max,
    "taskqueue_housekeeping_interval_seconds": max,
    "taskqueue_housekeeping_last_success_age_seconds": min,
}
"""What several parts say is added up, except where the sum would mean nothing."""
PREFIXES = (
    "task_", "tasks_", "active_workers", "pending_tasks", "retry_tasks", "worker_errors", "taskqueue_",
)  # fmt: skip


class Sources:
    """Other parts' addresses of metrics."""

    def __init__(self, addresses: Sequence[str], timeout: float = TIMEOUT) -> None:
        self.addresses = [_address(each) for each in addresses]
        self.timeout = timeout

    def collect(self, ours: frozenset[str]) -> bytes:
        """What the parts say of the product, without our own families; a part that does not answer is left out."""
        if not self.addresses:
            return b""
        with ThreadPoolExecutor(len(self.addresses)) as pool:
            texts = list(pool.map(self._fetch, self.addresses))
        registry = CollectorRegistry()
        registry.register(_Merged([text for text in texts if text], ours))
        return generate_latest(registry)

    def _fetch(self, address: str) -> str:
        request = urllib.request.Request(address, headers={FEDERATED: "1"})  # noqa: S310  # settings decide the scheme
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:  # noqa: S310
                return str(answer.read(MOST_BYTES).decode())
        except (URLError, OSError, ValueError):
            return ""


@dataclass(eq=False)
class _Merged(Collector):
    """The families of several pages as one: equal series (a counter of two workers) are added up."""

    texts: list[str]
    ours: frozenset[str]

    def collect(self) -> Iterable[Metric]:
        merged: dict[str, Metric] = {}
        for family in self._families():
            known = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            known.samples.extend(family.samples)
        for family in merged.values():
            _add_up(family)
        return merged.values()

    def _families(self) -> Iterator[Metric]:
        for text in self.texts:
            try:
                yield from (family for family in text_string_to_metric_families(text) if self._wanted(family.name))
            except ValueError:
                continue

    def _wanted(self, name: str) -> bool:
        return name.startswith(PREFIXES) and name not in self.ours and not name.endswith("_created")


def _add_up(family: Metric) -> None:
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    together: Callable[[float, float], float] = _TOGETHER.get(family.name, add)
    for sample in family.samples:
        series = (sample.name, tuple(sorted(sample.labels.items())))
        sums[series] = together(sums[series], sample.value) if series in sums else sample.value
    family.samples = []
    for (name, labels), value in sums.items():
        family.add_sample(name, dict(labels), value)


def _address(given: str) -> str:
    """Accepts host:port and full addresses."""
    address = given if "://" in given else f"http://{given}"
    return address if address.count("/") > 2 else f"{address}/metrics"
