"""Handlers whose code has changed since their tasks began."""

from __future__ import annotations

from pathlib import Path

import pytest

from firmq import LocalClient
from tests.features.durable.handlers import calls

FITS = {
    "steps behind the last one": [["a", "b"], ["a", "b", "c"]],
    "steps that change places": [["a", "b"], ["b", "a", "c"]],
    "no longer called, and nothing follows": [["a", "b"], ["a"]],
    "an added step that may be out of order": [["a", "b"], ["+x", "a", "b", "c"]],
    "an added step that was out of order": [["+x", "a"], ["a", "b"]],
}
DOES_NOT_FIT = {
    "a step before stored ones": ([["a", "b"], ["x", "the steps a", "the steps b"]], "x", "no steps", "the steps a, b"),
    "a step between stored ones": ([["a", "b"], ["a", "x", "b"]], "x", "the steps a", "the steps b"),
    "a renamed step": ([["a", "b"], ["a", "c"]], "c", "the steps a", "the steps b"),
    "a step that is no longer called": ([["a", "b"], ["b", "c"]], "c", "the steps b", "the steps a"),
    "after attempts that fitted": ([["a"], ["a", "b"], ["a", "c"]], "c", "the steps a", "the steps b"),
}
KINDS = pytest.mark.parametrize("kind", ["changing", "changing-async"])


@pytest.fixture
def local() -> LocalClient:
    return LocalClient(["tests.features.durable.handlers"])


def submit(local: LocalClient, kind: str, folder: Path, versions: list[list[str]]) -> str:
    return local.submit(kind, {"folder": str(folder), "versions": versions}, max_retries=9).task_id


@KINDS
@pytest.mark.parametrize("change", FITS)
def test_code_that_fits_continues(local: LocalClient, tmp_path: Path, kind: str, change: str) -> None:
    versions = FITS[change]
    assert local.result(submit(local, kind, tmp_path, versions)) == versions[-1]


@KINDS
@pytest.mark.parametrize("change", DOES_NOT_FIT)
def test_code_that_does_not_fit_runs_nothing_new(local: LocalClient, tmp_path: Path, kind: str, change: str) -> None:
    versions, new, passed, ahead = DOES_NOT_FIT[change]
    found = local.get(submit(local, kind, tmp_path, versions))
    assert (found.status, found.error and found.error.type) == ("failed", "WorkflowChanged")
    said = str(found.error and found.error.message)
    assert f"after {passed} it came to the new step '{new}', but {ahead} are stored" in said
    assert calls(tmp_path, new) == 0


def test_steps_beside_each_other_have_no_order(local: LocalClient, tmp_path: Path) -> None:
    versions = [["a", "b&c"], ["a", "b&c&d", "e"], ["a", "d&c", "e", "f"]]
    assert local.result(submit(local, "changing-async", tmp_path, versions)) == versions[-1]


def test_what_may_differ_between_attempts_changes_no_workflow(local: LocalClient, tmp_path: Path) -> None:
    """An error that is caught, the steps of items that a loop has finished, and threads."""
    task = local.submit("falling-back", {"folder": str(tmp_path)}, max_retries=3).task_id
    assert local.result(task) == "done"
    assert (calls(tmp_path, "item-1"), calls(tmp_path, "last")) == (1, 1)
