"""The dashboard and its users."""

from __future__ import annotations

from typing import Literal

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import Names, Seconds


class DashboardSettings(Group):
    """The dashboard and its users."""

    dashboard_users: Names = at(
        "dashboard.auth.users", (), "Dashboard users: name:role:hash, ...; roles are viewer, operator and admin."
    )
    dashboard_users_file: str = at(
        "dashboard.users_file", "", "File with more dashboard users, one name:role:hash per line."
    )
    dashboard_secret: str = at(
        "dashboard.secret", "", "Key that signs the dashboard's cookies; empty: generated and kept in Redis."
    )
    dashboard_session: Seconds = at("dashboard.session", 12 * 3600, "Duration of a dashboard session.", ge=60)
    dashboard_idle: Seconds = at(
        "dashboard.idle",
        2 * 3600,
        "How long a session lasts without a request; refreshes of open pages do not count. 0: until DASHBOARD_SESSION.",
    )
    dashboard_https: bool = at(
        "dashboard.https", False, "Marks the dashboard's cookies Secure, for access over HTTPS through a proxy."
    )
    dashboard_proxy_user_header: str = at(
        "dashboard.proxy_user_header",
        "",
        "Header in which a trusted proxy sends the name of the signed-in user; needs DASHBOARD_PROXY_SECRET.",
    )
    dashboard_proxy_secret: str = at(
        "dashboard.proxy_secret",
        "",
        "Secret that a trusted proxy sends as X-Proxy-Secret with the user's name; at least 24 characters.",
        pattern=r"^(\S{24,})?$",
    )
    dashboard_proxy_role: Literal["viewer", "operator", "admin"] = at(
        "dashboard.proxy_role",
        "viewer",
        "Role of users whom the proxy names and who are not in DASHBOARD_USERS or its file.",
    )
    dashboard_trusted_proxies: Names = at(
        "dashboard.trusted_proxies",
        ("127.0.0.1", "::1"),
        "Addresses from which DASHBOARD_PROXY_USER_HEADER and X-Forwarded-Prefix are accepted.",
    )
    dashboard_redact: Names = at(
        "dashboard.redact",
        (
            *("*password*", "*passwd*", "*secret*", "*token*", "*api_key*", "*api-key*", "*apikey*", "*card_number*"),
            *("*authorization*", "*cookie*"),
        ),
        "Fields whose values the dashboard hides in data and results, and gateways from personal API keys, by name or "
        "path (customer.iban); * matches any characters.",
    )
    dashboard_trace_url: str = at(
        "dashboard.trace_url",
        "",
        "Address of a trace, such as http://localhost:16686/trace/{trace_id}; empty: this machine's Jaeger, if any.",
        pattern=r"^(https?://\S*\{trace_id\}\S*)?$",
    )
    dashboard_refresh: Seconds = at("dashboard.refresh", 5, "Pause between refreshes of an open page.", ge=1, le=3600)
    dashboard_url: str = at(
        "dashboard.url",
        "",
        "Address at which users open the dashboard, such as https://queue.example.com; alerts link to it, and the "
        "identity provider redirects to it.",
        pattern=r"^(/|https?://[^/\s?#]+(/[^\s?#]*)?)?$",
    )
