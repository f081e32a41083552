"""Sign-in at an OpenID Connect provider, and API keys that users of the dashboard make for themselves."""

from __future__ import annotations

import hashlib

from firmq.shared.config.groups.dashboard import DashboardSettings
from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import Names, RolesByClaim, ScopeNames, Seconds, WebUrl


class SsoSettings(Group):
    """Sign-in at an OpenID Connect provider, and API keys that users of the dashboard make for themselves."""

    oidc_issuer: WebUrl = at(
        "dashboard.oidc.issuer",
        "",
        "Issuer of the OpenID Connect provider with which users sign in, such as https://login.example.com; empty: "
        "none. Needs OIDC_CLIENT_ID, OIDC_ROLES and DASHBOARD_URL.",
        pattern=r"^(https://\S+|http://(localhost|127\.0\.0\.1|\[::1\])([:/]\S*)?)?$",
    )
    oidc_client_id: str = at("dashboard.oidc.client_id", "", "Client id of the dashboard at this provider.")
    oidc_client_secret: str = at(
        "dashboard.oidc.client_secret", "", "Client secret of the dashboard at this provider; empty: a public client."
    )
    oidc_scopes: Names = at("dashboard.oidc.scopes", ("openid", "profile", "email"), "Scopes to request.")
    oidc_name_claim: str = at(
        "dashboard.oidc.name_claim",
        "email",
        "Claim with the user name that pages and the audit record show; sub is used if an account lacks this claim.",
    )
    oidc_roles_claim: str = at(
        "dashboard.oidc.roles_claim",
        "groups",
        "Claim whose values determine the role, in the ID token or the user info; a dot leads to a nested claim, such "
        "as realm_access.roles.",
    )
    oidc_roles: RolesByClaim = at(
        "dashboard.oidc.roles",
        {},
        "Roles by values of this claim, such as queue-admins:admin, queue-team:operator; *:viewer applies to every "
        "account. The highest role applies; an account without a role is refused.",
    )
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

    def sign_in_mark(self) -> str:
        if not self.oidc_issuer:
            return ""
        decides = (self.oidc_issuer, self.oidc_client_id, self.oidc_roles_claim, self.oidc_roles)
        return hashlib.sha256(repr(decides).encode()).hexdigest()[:16]

    def has_other_keys(self) -> bool:
        return bool(self.personal_keys)

    def check(self) -> None:
        others = {"oidc_client_id": self.oidc_client_id, "oidc_roles": self.oidc_roles}
        needed = {**others, "dashboard_url": DashboardSettings.of(self).dashboard_url}
        if self.oidc_issuer and (missing := [name.upper() for name, value in needed.items() if not value]):
            raise ValueError(f"OIDC_ISSUER also needs {', '.join(missing)}")
        if "openid" not in self.oidc_scopes:
            raise ValueError("OIDC_SCOPES must contain openid")
