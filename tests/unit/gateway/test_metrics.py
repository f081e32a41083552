"""Counts of several gateway processes in one folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from firmq.gateway.metrics import Metrics, take_over


def count(folder: Path, process: str, value: float) -> None:
    counts = MmapedDict(str(folder / f"counter_{process}.db"))  # type: ignore[no-untyped-call]  # it has none
    counts.write_value(mmap_key("n", "n_total", [], [], "Help."), value, 0.0)  # type: ignore[no-untyped-call]
    counts.close()  # type: ignore[no-untyped-call]


def page(folder: Path) -> str:
    return Metrics(shared_folder=str(folder)).render().decode()


@pytest.mark.parametrize("name", ["counter_2.db", "histogram_2.db"])
def test_the_file_of_a_process_that_starts_just_now_may_be_empty(tmp_path: Path, name: str) -> None:
    count(tmp_path, "1", 3)
    (tmp_path / name).touch()
    assert "n_total 3.0" in page(tmp_path)


@pytest.mark.parametrize("name", ["counter_2.db", "histogram_2.db"])
def test_a_process_may_die_before_it_counts(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    take_over(str(tmp_path), 2)
    assert not (tmp_path / name).exists()


def test_counts_of_ended_processes_stay(tmp_path: Path) -> None:
    for process, value in (("1", 3), ("2", 4)):
        count(tmp_path, process, value)
    take_over(str(tmp_path), 2)
    assert [each.name for each in sorted(tmp_path.glob("*.db"))] == ["counter_1.db", "counter_gone.db"]
    assert "n_total 7.0" in page(tmp_path)


def test_the_first_process_imports_prometheus_client_after_it_has_set_the_folder() -> None:
    code = (
        "import sys\n"
        "from firmq.gateway import serve\n"
        "from firmq.shared.config.settings import load\n"
        "serve._keys_or_exit(load({}))\n"
        "assert 'prometheus_client' not in sys.modules, 'it would count each process by itself'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
