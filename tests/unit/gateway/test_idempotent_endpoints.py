"""An endpoint that honours the header Idempotency-Key needs what a repetition is answered from."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Reply, endpoint, register


class WithoutReplay:
    @endpoint("POST", "/copies", Across.FIRST, tag="tasks", answers={}, idempotent=True)
    def copy(self) -> Reply:
        """Copies."""
        return Reply(content={})


def test_an_idempotent_endpoint_without_body_and_replay_is_refused_at_the_start() -> None:
    nothing: Any = None
    with pytest.raises(ValueError, match="/copies is idempotent: it needs a body, and WithoutReplay a method replay"):
        register(Flask("gateway"), WithoutReplay(), nothing)
