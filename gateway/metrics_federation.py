"""Metrics of other parts on the gateway's /metrics.

Each part has its own /metrics, and Prometheus scrapes them one by one. For installations without such a Prometheus, the
gateway requests the parts in METRICS_SOURCES at each scrape and includes their families. A Prometheus that scrapes the
parts itself uses `/metrics?parts=gateway`, which omits the others; otherwise everything would be counted twice.
"""

from __future__ import annotations

import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import add
from urllib.error import URLError
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

OWN = "parts=gateway"
"""The query for which a gateway returns only its own metrics; every other part ignores it."""
TIMEOUT = 1.0
MOST_BYTES = 4 << 20
_AT_ONCE = 16
_FRESH = 1.0
"""Seconds for which collected metrics are reused, so that many readers cost the parts no more than one."""
_SUMMED = frozenset(f"firmq_{name}" for name in ("executor_memory_bytes", "held_tasks", "slots", "busy_slots"))
"""Gauges of one worker. The others describe the whole system, and two leaders may show them for a moment."""
_AGE = "firmq_housekeeping_last_success_age_seconds"
_RUNS = tuple(f"firmq_housekeeping_{name}" for name in ("runs", "skips", "failures", "items", "seconds"))
_OF_INSTANCE = ("firmq_housekeeper_", "firmq_lock_", *_RUNS)
"""Families of a single housekeeper; they get the label `instance_id`, which merging would lose."""
_INFO = re.compile(r'^firmq_housekeeper_info\{instance_id="([^"\\]*)"\}', re.MULTILINE)
PREFIXES = (
    "task_", "tasks_", "active_workers", "pending_tasks", "retry_tasks", "worker_errors", "firmq_",
)  # fmt: skip


class MetricsFederation:
    """Collects the metrics of other parts."""

    def __init__(self, addresses: Sequence[str], timeout: float = TIMEOUT) -> None:
        self.addresses = [_address(each) for each in addresses]
        self.timeout = timeout
        self._alone = threading.Lock()
        self._collected, self._fresh_until = b"", float("-inf")

    def collect(self, ours: frozenset[str]) -> bytes:
        """Returns the merged metrics of the parts without the families in `ours`; omits parts that do not answer."""
        if not self.addresses:
            return b""
        with self._alone:
            if time.monotonic() >= self._fresh_until:
                self._collected = self._collect(ours)
                self._fresh_until = time.monotonic() + _FRESH
            return self._collected

    def _collect(self, ours: frozenset[str]) -> bytes:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            requests = [request for found in pool.map(_requests, self.addresses) for request in found]
            texts = list(pool.map(self._fetch, requests))
        registry = CollectorRegistry()
        registry.register(_Merged([text for text in texts if text], ours))
        return generate_latest(registry)

    def _fetch(self, request: urllib.request.Request) -> str:
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:  # noqa: S310  # settings decide it
                return str(answer.read(MOST_BYTES).decode())
        except (URLError, OSError, ValueError):
            return ""


@dataclass(eq=False)
class _Merged(Collector):
    """The families of several pages, merged: equal series (a counter of two workers) are combined."""

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
            named = _INFO.search(text)
            try:
                for family in text_string_to_metric_families(text):
                    if self._wanted(family.name):
                        yield _of_instance(family, named[1]) if named else family
            except ValueError:
                continue

    def _wanted(self, name: str) -> bool:
        return name.startswith(PREFIXES) and name not in self.ours and not name.endswith("_created")


def _of_instance(family: Metric, instance: str) -> Metric:
    """Adds the housekeeper's name to the series of a family that needs it."""
    if family.name.startswith(_OF_INSTANCE):
        family.samples = [each._replace(labels={**each.labels, "instance_id": instance}) for each in family.samples]
    return family


def _add_up(family: Metric) -> None:
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    together = _together(family)
    for sample in family.samples:
        series = (sample.name, tuple(sorted(sample.labels.items())))
        sums[series] = together(sums[series], sample.value) if series in sums else sample.value
    family.samples = []
    for (name, labels), value in sums.items():
        family.add_sample(name, dict(labels), value)


def _together(family: Metric) -> Callable[[float, float], float]:
    """Returns the function that combines values of equal series."""
    if family.type != "gauge" or family.name in _SUMMED:
        return add
    return min if family.name == _AGE else max


def _address(given: str) -> str:
    """Accepts host:port and full addresses."""
    address = given if "://" in given else f"http://{given}"
    address = address if address.count("/") > 2 else f"{address}/metrics"
    return f"{address}{'&' if '?' in address else '?'}{OWN}"


def _requests(address: str) -> list[urllib.request.Request]:
    """Returns a request for each instance: a name may have several addresses, one per container or pod of a service.

    Only addresses of one IP version are used; otherwise an instance that has both would be counted twice.
    """
    parts = urlsplit(address)
    if parts.scheme != "http" or not parts.hostname:
        return [urllib.request.Request(address)]  # noqa: S310
    found = _resolved(parts.hostname, socket.AF_INET) or [f"[{each}]" for each in _resolved(parts.hostname)]
    places = [each if parts.port is None else f"{each}:{parts.port}" for each in found]
    return [
        urllib.request.Request(parts._replace(netloc=place).geturl(), headers={"Host": parts.netloc})  # noqa: S310
        for place in places
    ]


def _resolved(host: str, family: socket.AddressFamily = socket.AF_INET6) -> list[str]:
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(host, None, family, socket.SOCK_STREAM)})
    except OSError:
        return []
