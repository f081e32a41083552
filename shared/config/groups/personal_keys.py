"""API keys that users of the dashboard make for themselves."""

from __future__ import annotations

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import ScopeNames, Seconds


class PersonalKeySettings(Group):
    """API keys that users of the dashboard make for themselves."""

    personal_keys: ScopeNames = at(
        "personal_keys.scopes",
        (),
        "Scopes of the API keys that users of the dashboard may create for themselves: submit, read, operate, admin; "
        "empty: no personal keys. Set the same value for gateways and dashboards.",
    )
    personal_key_lifetime: Seconds = at(
        "personal_keys.lifetime",
        30 * 86_400,
        "Maximum time for which a personal API key is valid, from 1d to 365d.",
        ge=86_400,
        le=365 * 86_400,
    )
    personal_keys_per_user: int = at(
        "personal_keys.per_user", 10, "Maximum personal API keys of one user at a time.", ge=1, le=100
    )
