"""The secrets that sign webhooks; where they may go is a setting of the core, because it applies to alerts too."""

from __future__ import annotations

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import Secrets, signing_key


class WebhookSettings(Group):
    """The secrets that sign webhooks."""

    webhook_secrets: Secrets = at(
        "webhooks.secrets",
        (),
        "Secrets for signing webhooks; each one adds a signature (whsec_ and base64, or at least 24 characters). "
        "Empty: webhooks are off.",
    )

    def signing_keys(self) -> tuple[bytes, ...]:
        """Returns the keys that sign webhooks."""
        return tuple(map(signing_key, self.webhook_secrets))

    def takes_webhooks(self, *, signed: bool) -> bool:
        """Returns whether tasks may have webhooks."""
        return bool(self.webhook_secrets) or not signed

    def modules(self) -> tuple[str, ...]:
        """Returns the handler of deliveries, which every worker has."""
        return ("firmq.worker.features.webhooks.handler",)
