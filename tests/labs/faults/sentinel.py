"""The laboratory behind sentinels: a master with two replicas, which changes while everything else goes wrong too.

Redis copies to its replicas after it has answered, and only submissions wait for that here: so a change of master may
undo the last steps of everything else, which are then done again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from redis import Redis

from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.integration.redis.watched import SERVICE, Watched
from tests.labs.faults import judges
from tests.labs.faults.addresses import HOST, new_port
from tests.labs.faults.case import Case
from tests.labs.faults.faults import FAULTS, Fault, Scene, Undo, cut, flush_scripts, refuse, swallow
from tests.labs.faults.rollback import untouched
from tests.labs.faults.site import PARTS, Site, freeze, thaw
from tests.support.harness import wait_until
from tests.support.relay import SpanForwarder

REPLICAS = 2


class WatchedSite(Site):
    """Every part finds Redis through the sentinels, and nothing counts as accepted that not all replicas have."""

    def __init__(self, folder: Path, kinds_of_parts: Mapping[str, Sequence[str]] = PARTS) -> None:
        super().__init__(folder, kinds_of_parts)
        self.watched = Watched(self.data, REPLICAS, HOST, new_port)
        self._admins: dict[int, Redis] = {}

    @property
    def admin(self) -> Redis:
        """A client of whom the sentinels name."""
        master = self.watched.master
        return self._admins.setdefault(master.port, self.watched.direct(master))

    def start_store(self) -> None:
        self.watched.start()
        self.await_whole()

    def stop_store(self) -> None:
        self.watched.stop()

    def way_to_store(self) -> tuple[SpanForwarder | None, dict[str, str]]:
        return None, {**self.watched.environment, "SUBMIT_REPLICAS": str(REPLICAS)}

    def await_whole(self) -> EmbeddedRedis:
        """The master, once all others are its replicas; the parts are looked after meanwhile."""
        wait_until(self._is_whole, "the master has all its replicas", 90)
        return self.watched.master

    def _is_whole(self) -> bool:
        self.look()
        time.sleep(0.1)
        return self.watched.whole


# --- What goes wrong -----------------------------------------------------------------------------------------------


def kill_master(scene: Scene) -> Undo:
    """It is started again when another rules, believes that it is the master, and is told by the sentinels."""
    site, master = _begin(scene)
    master.kill()

    def start_as_replica() -> None:
        site.watched.await_promotion(master)
        master.start()
        site.await_whole()

    return start_as_replica


def freeze_master(scene: Scene) -> Undo:
    """It wakes up when another rules, believes that it is the master, and answers those who are still connected."""
    site, master = _begin(scene)
    pids = [master.pid] if master.pid else []
    freeze(pids)

    def wake_up() -> None:
        site.watched.await_promotion(master)
        thaw(pids)
        site.await_whole()

    return wake_up


def change_master(scene: Scene) -> Undo:
    """By hand, which nobody is told beforehand."""
    site, master = _begin(scene)
    site.watched.ask("FAILOVER", SERVICE)

    def settle() -> None:
        site.watched.await_promotion(master)
        site.await_whole()

    return settle


def _begin(scene: Scene) -> tuple[WatchedSite, EmbeddedRedis]:
    assert isinstance(scene.site, WatchedSite)
    scene.happened.holds_up = scene.happened.rolls_back = True
    return scene.site, scene.site.await_whole()


CHANGES = [
    Fault("master killed", "redis", 0, 2.5, kill_master),
    Fault("master frozen", "redis", 2, 5, freeze_master),
    Fault("master changed by hand", "redis", 0, 1, change_master),
]
_ELSEWHERE = (cut, refuse, swallow)
"""They need a relay."""
FAULTS_HERE = [
    *(each for each in FAULTS if each.takes != "redis" and each.begin not in _ELSEWHERE),
    *(each for each in FAULTS if each.begin is flush_scripts),
    *CHANGES,
]


# --- What is promised ----------------------------------------------------------------------------------------------

UNTOUCHED_ONLY = (*judges.UNLESS_ROLLED_BACK, judges.who_is_cancelled_stops)
"""These hold for tasks that nothing happened to during a change of master: only submissions wait for replicas."""
NOT_HERE = (judges.limits_hold,)
"""Who runs without the new master's knowledge is not counted against a limit."""
FOR_ALL = tuple(each for each in judges.JUDGES if each not in (*UNTOUCHED_ONLY, *NOT_HERE))


def judge(case: Case) -> dict[str, list[str]]:
    """What the judges who can judge here have to complain of."""
    return judges.judge(case, FOR_ALL) | judges.judge(untouched(case), UNTOUCHED_ONLY)
