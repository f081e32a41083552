"""The data folder keeps secrets, lets one server in at a time, and knows who wrote it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from firmq.shared.errors import SettingsError
from firmq.shared.local.data_folder import DataFolder

AT_ONCE = 0.0


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    folder = DataFolder(tmp_path / "data")
    folder.create()
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_password_is_made_once_and_kept(folder: DataFolder) -> None:
    assert len(folder.password()) >= 32
    assert DataFolder(folder.path).password() == folder.password()


def test_an_empty_password_file_gets_a_new_password(folder: DataFolder) -> None:
    (folder.path / "redis.password").write_text("\n")
    assert len(folder.password()) >= 32


def test_only_the_owner_may_read_the_secrets(folder: DataFolder) -> None:
    password = folder.password()
    folder.configure({"requirepass": password})
    assert mode(folder.path) == 0o700
    holders = [path for path in folder.path.iterdir() if password in path.read_text()]
    assert len(holders) == 2
    assert {mode(path) for path in holders} == {0o600}


@pytest.mark.parametrize("ours", [True, False], ids=["with data", "empty"])
def test_a_folder_that_others_can_read_is_closed(tmp_path: Path, ours: bool) -> None:
    folder = DataFolder(tmp_path)
    if ours:
        folder.password()
    tmp_path.chmod(0o755)
    folder.create()
    assert mode(folder.path) == 0o700


def test_a_folder_of_other_things_that_others_can_read_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text("of somebody")
    tmp_path.chmod(0o755)
    with pytest.raises(SettingsError, match="is open to other users and contains other files: run chmod 700"):
        DataFolder(tmp_path).create()
    assert mode(tmp_path) == 0o755


def test_git_leaves_a_new_folder_out_and_one_that_was_there_as_it_is(folder: DataFolder, tmp_path: Path) -> None:
    assert (folder.path / ".gitignore").read_text() == "*\n"
    tmp_path.chmod(0o700)
    DataFolder(tmp_path).create()
    assert not (tmp_path / ".gitignore").exists()


def test_configuration_quotes_its_values(folder: DataFolder) -> None:
    folder.configure({"save": "", "dir": '/a folder/with "quotes"'})
    assert folder.config_file.read_text() == 'save ""\ndir "/a folder/with \\"quotes\\""\n'


def test_folder_that_cannot_be_made_is_a_mistake_in_the_settings(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"DATA_DIR: .*file/data cannot be used"):
        DataFolder(tmp_path / "file" / "data").create()


def test_locked_folder_is_refused_until_the_last_holder_is_gone(folder: DataFolder) -> None:
    held = folder.lock(AT_ONCE)
    inherited = os.dup(held)
    os.close(held)
    with pytest.raises(SettingsError, match=r"another server uses .*set DATA_DIR"):
        folder.lock(AT_ONCE)
    os.close(inherited)
    os.close(folder.lock(AT_ONCE))
