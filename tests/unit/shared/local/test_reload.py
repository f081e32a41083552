"""When a change of files becomes a request to load handlers anew."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from firmq.shared.local.reload import INTERVAL, SETTLED, Reloader
from firmq.shared.local.source_files import SourceFiles


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class SlowFiles(SourceFiles):
    """Files that take a time to look at."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__([folder])
        self.clock, self.seconds, self.looks = clock, 0.0, 0
        self.processor, self.interrupted = Clock(), 0.0

    def changed(self) -> list[Path]:
        self.looks += 1
        self.clock.now += self.seconds + self.interrupted
        self.processor.now += self.seconds
        return super().changed()


class Scene:
    """A reloader over one file, called in steps of a tenth of a second as by the supervisor."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "tasks.py"
        self.file.write_text("x = 1\n")
        self.clock = Clock()
        self.files = SlowFiles(folder, self.clock)
        self.ready = True
        self.requests: list[float] = []
        self.lines: list[str] = []
        self.reloader = Reloader(self.files, self.request, self.lines.append, self.clock, self.files.processor)

    def request(self) -> bool:
        self.requests.append(self.clock.now)
        return self.ready

    def run(self, seconds: float) -> None:
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.reloader()
            self.clock.now += 0.1


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.chdir(tmp_path)
    return Scene(tmp_path)


def test_a_save_is_one_request_soon_after_it(scene: Scene) -> None:
    scene.run(1)
    scene.file.write_text("x = 1 + 1\n")
    saved = scene.clock.now
    scene.run(1)
    assert len(scene.requests) == 1
    assert scene.requests[0] - saved <= INTERVAL + SETTLED + 0.2
    assert scene.lines == ["tasks.py changed: reloading handlers"]


def test_files_written_one_after_the_other_are_one_request(scene: Scene) -> None:
    for number in range(5):
        (scene.file.parent / f"more{number}.py").write_text("x = 1\n")
        scene.run(0.1)
    scene.run(1)
    assert len(scene.requests) <= 2
    assert scene.lines[-1].endswith("others changed: reloading handlers")


def test_a_worker_that_is_not_ready_is_asked_again(scene: Scene) -> None:
    scene.ready = False
    scene.file.write_text("x = 1 + 1\n")
    scene.run(1)
    assert (len(scene.requests) >= 3, scene.lines) == (True, [])
    scene.ready = True
    scene.run(1)
    requests = len(scene.requests)
    scene.run(1)
    assert len(scene.requests) == requests
    assert len(scene.lines) == 1


def test_a_folder_that_takes_long_is_looked_at_less_often(scene: Scene) -> None:
    scene.files.seconds = 0.1
    scene.run(60)
    assert 10 < scene.files.looks < 30


def test_the_compiled_form_of_a_changed_file_is_removed(scene: Scene) -> None:
    compiled = Path(importlib.util.cache_from_source(str(scene.file)))
    compiled.parent.mkdir(parents=True, exist_ok=True)
    compiled.touch()
    scene.file.write_text("x = 2\n")
    scene.run(1)
    assert not compiled.exists(), "it would be taken for current: same size, same second"


def test_a_machine_that_interrupts_a_look_does_not_delay_the_next(scene: Scene) -> None:
    scene.files.interrupted = 0.4
    scene.run(1)
    scene.files.interrupted = 0
    scene.file.write_text("x = 1 + 2\n")
    saved = scene.clock.now
    scene.run(2)
    assert scene.requests[0] - saved <= INTERVAL + SETTLED + 0.5
