"""The keys and the settings of sign-ins at an identity provider and of personal API keys."""

from __future__ import annotations

from firmq.shared.features.sso.keys import SsoKeys
from firmq.shared.registry import Feature

FEATURE = Feature(keys=SsoKeys, settings="firmq.shared.features.sso.settings:SsoSettings")
