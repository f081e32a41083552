"""A fault lasts as long as it was drawn, whatever another one waits for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from redis.exceptions import ReadOnlyError

from tests.labs.faults.faults import Fault, Scene
from tests.labs.faults.laboratory import Laboratory
from tests.labs.faults.site import Site


def test_a_fault_that_redis_has_to_hear_of_does_not_prolong_the_one_that_makes_it_deaf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf: list[bool] = []

    def make_deaf(scene: Scene) -> Callable[[], object]:
        deaf.append(True)
        return deaf.clear

    def tell(scene: Scene) -> Callable[[], object]:
        def act(redis: object) -> None:
            if deaf:
                raise ReadOnlyError("not now")

        assert scene.site.tell(act, seconds=5)
        return lambda: None

    monkeypatch.setattr(Site, "admin", None)
    site = Site(tmp_path, {})
    laboratory = Laboratory(site, 1, [])
    laboratory._begin(Fault("deaf", "redis", 0.2, 0.2, make_deaf))
    laboratory._begin(Fault("told", "data", 0.0, 0.0, tell))
    over, told = laboratory.run.happened
    assert over.end_ns - over.begin_ns < 2_000_000_000
    assert told.name == "told"
    site.close()
