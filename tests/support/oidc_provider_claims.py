"""The claims of the real provider: Django loads them once it is configured."""

from __future__ import annotations

from typing import Any

from oauth2_provider.oauth2_validators import OAuth2Validator

from tests.support.oidc_provider import GROUPS


class Validator(OAuth2Validator):  # type: ignore[misc]  # it has no types
    oidc_claim_scope = None

    def get_additional_claims(self, request: Any) -> dict[str, Any]:
        return {"email": request.user.email, "groups": GROUPS[request.user.username]}
