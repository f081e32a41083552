"""The settings of webhooks."""

from __future__ import annotations

from firmq.shared.registry import Feature

FEATURE = Feature(settings="firmq.shared.features.webhooks.settings:WebhookSettings")
