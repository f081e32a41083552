"""Sign-in at an identity provider, and the page of personal API keys."""

from __future__ import annotations

from firmq.dashboard.feature import Feature
from firmq.dashboard.features.sso.pages import Accounts, blueprint
from firmq.shared.features.sso.settings import SsoSettings

FEATURE = Feature(
    name="sso",
    blueprint=blueprint,
    open=Accounts,
    navigation=(("/audit", "/keys", "API keys"),),
    in_menu=lambda settings: bool(SsoSettings.of(settings).personal_keys),
    slots={"sign_in.top": "sso/button.html"},
)
