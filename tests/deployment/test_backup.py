"""Backups are whole or not made, and a restore that fails changes nothing: the recipes, on a folder.

`test_restore.py` tries them on real servers.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.support.documents import DOCUMENTS
from tests.support.harness import ROOT

COMPOSE = """#!/bin/sh
# docker compose for one container, whose /data is a folder here.
echo "$1" >>{calls}
case "$1" in
  exec) test ! -e {away} || exit 1 ;;
  run) ;;
  *) exit 0 ;;
esac
for last; do :; done
exec sh -ec "$(printf '%s' "$last" | sed 's,/data,{data},g')"
"""
REDIS_CLI = """#!/bin/sh
case "$*" in
  "config set "*) echo OK ;;
  "info persistence") echo aof_rewrite_in_progress:0 ;;
  "--rdb "*) test ! -e {away} && echo "$(cat {data}/appendonlydir/base)" >"$2" ;;
esac
"""
CHECK_RDB = "#!/bin/sh\ngrep -q whole $1\n"
"""What is no backup is one without the word."""


class Volume:
    """Redis' data in a folder, and the commands that find it there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.live = self.data / "appendonlydir"
        self.away = folder / "redis-is-down"
        self.calls = folder / "calls"
        self.backup = folder / "backup.tar"
        self.live.mkdir(parents=True)
        self.write("first")
        names = {"calls": self.calls, "away": self.away, "data": self.data}
        for name, text in (("compose", COMPOSE), ("redis-cli", REDIS_CLI), ("redis-check-rdb", CHECK_RDB)):
            command = folder / "bin" / name
            command.parent.mkdir(exist_ok=True)
            command.write_text(re.sub(r"\{(calls|away|data)\}", lambda found: str(names[found[1]]), text))
            command.chmod(0o755)

    def write(self, text: str) -> None:
        (self.live / "base").write_text(f"whole {text} " + "." * 20_000)
        (self.live / "incr").write_text(text)
        (self.live / "appendonly.aof.manifest").write_text(
            "file base seq 2 type b\nfile gone seq 1 type h\nfile incr seq 1 type i\n"
        )

    def text(self) -> str:
        return (self.live / "incr").read_text()

    def run(self, *arguments: str, stdin: Path | None = None) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin"}
        given = stdin.read_text() if stdin else ""
        return subprocess.run(
            arguments, cwd=self.folder, env=environment, input=given, text=True, capture_output=True, check=False
        )

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("make", "-s", "-f", str(ROOT / "Makefile"), *arguments, f"COMPOSE={self.folder}/bin/compose")

    def called(self) -> list[str]:
        return self.calls.read_text().split() if self.calls.exists() else []


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    return Volume(tmp_path)


def test_a_backup_brings_back_what_was_there_and_what_gave_way_is_kept(volume: Volume) -> None:
    for text in ("second", "third", "fourth"):
        assert volume.make("backup", f"TO={volume.backup}").returncode == 0
        before = volume.text()
        volume.write(text)
        done = volume.make("restore", f"FROM={volume.backup}")
        assert done.returncode == 0, done.stderr
        assert volume.text() == before
        assert (volume.data / "before-restore" / "incr").read_text() == text
        assert sorted(each.name for each in volume.data.iterdir()) == ["appendonlydir", "before-restore"]
        volume.write(text)
    assert volume.called() == ["exec", "stop", "run", "start"] * 3
    assert volume.backup.stat().st_mode & 0o077 == 0


def test_what_an_interrupted_backup_left_is_not_in_the_next_one(volume: Volume) -> None:
    old = volume.data / "backup"
    old.mkdir()
    for name in ("base", "incr", "appendonly.aof.manifest"):
        (old / name).write_text((volume.live / name).read_text())
    volume.write("second")
    assert volume.make("backup", f"TO={volume.backup}").returncode == 0
    with tarfile.open(volume.backup) as archive:
        member = archive.extractfile("./incr")
        assert member is not None
        assert member.read() == b"second"
    assert not old.exists()


@pytest.mark.parametrize("why", ["Redis is down", "a file is missing"])
def test_a_backup_that_fails_leaves_the_one_before_as_it_was(volume: Volume, why: str) -> None:
    assert volume.make("backup", f"TO={volume.backup}").returncode == 0
    before = volume.backup.read_bytes()
    if why == "Redis is down":
        volume.away.touch()
    else:
        (volume.live / "incr").unlink()
    done = volume.make("backup", f"TO={volume.backup}")
    assert done.returncode != 0
    assert "no backup was made" in done.stderr
    assert volume.backup.read_bytes() == before
    assert not list(volume.folder.glob("*.part"))
    assert not (volume.data / "backup").exists()


@pytest.mark.parametrize("kept", [0, 700, 2_000, 0.5, 0.9])
def test_a_backup_that_was_cut_off_is_refused_before_anything_stops(volume: Volume, kept: float) -> None:
    assert volume.make("backup", f"TO={volume.backup}").returncode == 0
    volume.calls.unlink()
    volume.write("second")
    whole = volume.backup.read_bytes()
    with tarfile.open(volume.backup) as archive:
        end = max(each.offset_data + each.size for each in archive.getmembers())
    volume.backup.write_bytes(whole[: int(kept * end) if kept < 1 else int(kept)])
    done = volume.make("restore", f"FROM={volume.backup}")
    assert done.returncode != 0
    assert "nothing was changed" in done.stderr
    assert volume.text() == "second"
    assert volume.called() == []


def test_a_backup_that_ends_between_two_files_is_refused(volume: Volume) -> None:
    assert volume.make("backup", f"TO={volume.backup}").returncode == 0
    with tarfile.open(volume.backup) as archive:
        last = archive.getmembers()[-1]
    volume.backup.write_bytes(volume.backup.read_bytes()[: last.offset])
    assert volume.make("restore", f"FROM={volume.backup}").returncode != 0
    assert volume.called() == ["exec"]


def test_a_restore_that_fails_half_way_leaves_the_data_and_starts_what_it_stopped(volume: Volume) -> None:
    assert volume.make("backup", f"TO={volume.backup}").returncode == 0
    volume.write("second")
    tar = volume.folder / "bin" / "tar"
    tar.write_text(
        '#!/bin/sh\ncase "$*" in *"-xf -") /usr/bin/tar "$@" && exit 2 ;; *) exec /usr/bin/tar "$@" ;; esac\n'
    )
    tar.chmod(0o755)
    done = volume.make("restore", f"FROM={volume.backup}")
    assert done.returncode != 0
    assert "nothing was restored" in done.stderr
    assert volume.text() == "second"
    assert [each.name for each in volume.data.iterdir()] == ["appendonlydir"]
    assert volume.called() == ["exec", "stop", "run", "start"]


# --- on Kubernetes, as the README says ---


def _in_the_pod(volume: Volume, number: int) -> str:
    """What the README has the pod's shell do: the first is the backup, the second the restore."""
    text = DOCUMENTS
    scripts = re.findall(r"kubectl exec (?:-i )?-n task-queue redis-0 -- sh -ec '([^']+)'", text)
    assert len(scripts) == 2
    return str(scripts[number]).replace("/data", str(volume.data))


def test_the_readmes_backup_ends_well_only_when_there_is_one(volume: Volume) -> None:
    done = volume.run("sh", "-ec", _in_the_pod(volume, 0))
    assert done.returncode == 0, done.stderr
    assert "whole first" in done.stdout
    volume.away.touch()
    assert volume.run("sh", "-ec", _in_the_pod(volume, 0)).returncode != 0
    assert "> backup.part && mv backup.part backup.rdb" in DOCUMENTS


def test_the_readmes_restore_works_every_time_and_changes_nothing_when_the_backup_is_cut_off(volume: Volume) -> None:
    backup = volume.folder / "backup.rdb"
    for number in range(4):
        backup.write_text(f"whole {number}")
        done = volume.run("sh", "-ec", _in_the_pod(volume, 1), stdin=backup)
        assert done.returncode == 0, done.stderr
        [base] = volume.live.glob("*.base.rdb")
        assert base.read_text() == f"whole {number}"
        assert sorted(each.name for each in volume.data.iterdir()) == ["appendonlydir", "before-restore"]
        assert f"file {shlex.quote(base.name)} " in (volume.live / "appendonly.aof.manifest").read_text()
        backup.write_text("cut off")
        assert volume.run("sh", "-ec", _in_the_pod(volume, 1), stdin=backup).returncode != 0
        assert base.read_text() == f"whole {number}"
