"""Which files count as the developer's own, and when a change of them becomes a request to load handlers anew."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from firmq.shared.features.dev.reload import OwnFiles, reloading
from tests.support.harness import wait_until


def write(file: Path, text: str = "x = 1\n") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


class Scene:
    """One file of handlers that is watched."""

    def __init__(self, folder: Path) -> None:
        self.file = write(folder / "tasks.py")
        self.ready = True
        self.requests = 0
        self.lines: list[str] = []

    def request(self) -> bool:
        self.requests += 1
        return self.ready

    def save(self, text: str) -> None:
        """Saves the file again until that is seen, as it may happen before the watch begins."""
        lines = len(self.lines)

        def seen() -> bool:
            write(self.file, text)
            return len(self.lines) > lines or not self.ready

        wait_until(seen, "a save was seen")


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.chdir(tmp_path)
    found = Scene(tmp_path)
    with reloading(OwnFiles([tmp_path]), found.request, found.lines.append):
        yield found


@pytest.mark.parametrize("place", ["tasks.py", "shop/deep/tasks.py", "env/bin/tool.py"])
def test_files_of_a_folder_are_the_developers_own(tmp_path: Path, place: str) -> None:
    assert OwnFiles([tmp_path])("changed", str(tmp_path / place))


@pytest.mark.parametrize(
    "place", [".git/a.py", ".venv/a.py", "__pycache__/a.py", "node_modules/a.py", "env/lib/site-packages/a.py", "a.txt"]
)
def test_other_files_are_not(tmp_path: Path, place: str) -> None:
    assert not OwnFiles([tmp_path])("changed", str(tmp_path / place))


def test_a_project_may_lie_in_a_hidden_folder(tmp_path: Path) -> None:
    project = write(tmp_path / ".work" / "tasks.py").parent
    assert OwnFiles([project])("changed", str(project / "tasks.py"))


def test_a_single_file_is_watched_in_its_folder_and_missing_places_are_left_out(tmp_path: Path) -> None:
    file = write(tmp_path / "tasks.py")
    files = OwnFiles([file, tmp_path / "missing"])
    assert files.folders == [tmp_path]
    assert files("changed", str(file))
    assert not files("changed", str(tmp_path / "beside.py"))


def test_a_save_is_a_request(scene: Scene) -> None:
    scene.save("x = 2\n")
    assert set(scene.lines) == {"tasks.py changed: reloading handlers"}


def test_a_worker_that_is_not_ready_is_asked_again(scene: Scene) -> None:
    scene.save("x = 2\n")
    scene.ready = False
    requests = scene.requests
    write(scene.file, "x = 3\n")
    wait_until(lambda: scene.requests > requests + 2, "it is asked again")
    lines = len(scene.lines)
    wait_until(lambda: scene.requests > requests + 4, "it is asked on")
    assert len(scene.lines) == lines
    scene.ready = True
    wait_until(lambda: len(scene.lines) > lines, "it has accepted")


def test_the_compiled_form_of_a_changed_file_is_removed(scene: Scene) -> None:
    compiled = write(Path(importlib.util.cache_from_source(str(scene.file))))
    scene.save("x = 2\n")
    assert not compiled.exists(), "it would be taken for current: same size, same second"


def test_a_file_that_an_editor_replaced_is_changed(scene: Scene) -> None:
    scene.save("x = 2\n")
    lines = len(scene.lines)
    write(scene.file.parent / "draft", "x = 3\n").replace(scene.file)
    wait_until(lambda: len(scene.lines) > lines, "the new file was seen")
