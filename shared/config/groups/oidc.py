"""Sign-in at an OpenID Connect provider."""

from __future__ import annotations

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import Names, RolesByClaim, WebUrl


class OidcSettings(Group):
    """Sign-in at an OpenID Connect provider."""

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
