"""The stores of large payloads, their settings, their job and the doctor's check."""

from __future__ import annotations

from firmq.shared.registry import Feature

FEATURE = Feature(
    jobs=("payloads",),
    settings="firmq.shared.features.payloads.settings:PayloadSettings",
    payloads="firmq.shared.features.payloads.stores:payloads_of",
    checks="firmq.shared.features.payloads.stores:check_payload_store",
)
