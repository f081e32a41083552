"""The keys of sign-ins at an identity provider and of personal API keys."""

from __future__ import annotations

from firmq.shared.redis.keys import Key, KeySpace


class SsoKeys(KeySpace):
    """The keys of sign-ins at an identity provider and of personal API keys."""

    PERSONAL_KEYS = Key("firmq:personal-keys", "hash")
    """hash, owner: personal_key_add, the dashboard; at most 1,000. Personal API keys by id: JSON with a hash of each.

    Grants access where PERSONAL_KEYS allows it (`personal_keys.py`).
    """

    def dashboard_sign_in(self, digest: str) -> str:
        """string, owner: the dashboard; an hour. A sign-in at the identity provider that succeeded, to be good once."""
        return f"{self.prefix}firmq:dashboard:sign-in:{digest}"
