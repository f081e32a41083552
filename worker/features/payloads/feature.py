"""The job that removes payloads; the first of several Redis servers has it, because they share one payload store."""

from __future__ import annotations

from datetime import timedelta

from firmq.shared.features.payloads.settings import PayloadSettings
from firmq.shared.features.payloads.stores import open_payload_store, payloads_of
from firmq.shared.stores.tasks import all_records
from firmq.worker.feature import Feature, Services
from firmq.worker.features.payloads.job import Payloads


def _jobs(services: Services) -> list[Payloads]:
    own = PayloadSettings.of(services.settings)
    store = open_payload_store(own.payload_store)
    if store is None or (services.place and not services.place.is_first):
        return []
    interval = timedelta(seconds=own.housekeeper_payloads_interval)
    records = all_records(services.records, services.settings)
    return [Payloads(services.scripts, store, records, interval, others=services.others)]


FEATURE = Feature(jobs=_jobs, prepare=payloads_of)  # a library may be missing: that ends a worker with a reason
