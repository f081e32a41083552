"""Which files count as the developer's own, and when one has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from firmq.shared.local.source_files import SourceFiles


def write(file: Path, text: str = "x = 1\n") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_files_that_were_written_added_and_removed_are_changed_once(tmp_path: Path) -> None:
    kept, written, removed = (write(tmp_path / "shop" / f"{name}.py") for name in ("kept", "written", "removed"))
    files = SourceFiles([tmp_path])
    assert files.changed() == []
    write(written, "x = 2 + 2\n")
    added = write(tmp_path / "shop" / "deep" / "added.py")
    removed.unlink()
    assert files.changed() == sorted([written, added, removed])
    assert files.changed() == []
    assert kept.exists()


def test_a_file_that_an_editor_replaced_is_changed(tmp_path: Path) -> None:
    file, draft = write(tmp_path / "tasks.py"), write(tmp_path / "draft")
    before = file.stat()
    files = SourceFiles([tmp_path])
    os.utime(draft, ns=(before.st_atime_ns, before.st_mtime_ns))
    draft.replace(file)
    assert files.changed() == [file]


@pytest.mark.parametrize("place", [".git", "__pycache__", "node_modules", "env/lib/site-packages"])
def test_other_peoples_files_are_left_out(tmp_path: Path, place: str) -> None:
    files = SourceFiles([tmp_path])
    write(tmp_path / place / "other.py")
    assert files.changed() == []


def test_a_virtual_environment_is_left_out_whatever_its_name(tmp_path: Path) -> None:
    write(tmp_path / "python" / "pyvenv.cfg")
    files = SourceFiles([tmp_path])
    write(tmp_path / "python" / "lib" / "other.py")
    assert files.changed() == []
    own = SourceFiles([tmp_path / "python"])
    write(tmp_path / "python" / "tasks.py")
    assert own.changed() == [tmp_path / "python" / "tasks.py"], "a project may have its environment in its own folder"


def test_other_kinds_of_files_are_left_out(tmp_path: Path) -> None:
    files = SourceFiles([tmp_path])
    write(tmp_path / "notes.txt")
    assert files.changed() == []


def test_a_single_file_and_missing_places_are_watched_too(tmp_path: Path) -> None:
    file, missing = write(tmp_path / "tasks.py"), tmp_path / "missing.py"
    files = SourceFiles([file, missing])
    write(tmp_path / "beside.py")
    assert files.changed() == []
    write(file, "x = 22\n")
    write(missing)
    assert files.changed() == [missing, file]


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    assert SourceFiles([tmp_path]).changed() == []
