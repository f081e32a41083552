"""Every planted bug can still be planted and looked for, and no promise is without one."""

from __future__ import annotations

import re

import pytest

from tests.labs.faults.faults import BY_NAME
from tests.labs.faults.judges import JUDGES, promise_of
from tests.labs.faults.mutations import MUTATIONS, Mutation
from tests.support.harness import ROOT
from tests.support.planting import plant


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_a_planted_bug_has_its_place_and_its_finder(mutation: Mutation) -> None:
    assert plant((ROOT / mutation.path).read_text(), mutation.old, mutation.new)
    assert set(mutation.check.faults) <= BY_NAME.keys()
    assert set(mutation.judges) <= {promise_of(judge) for judge in JUDGES}
    assert bool(mutation.judges) is bool(mutation.check.faults) is not bool(mutation.check.tests)
    for file, name in (address.split("::") for address in mutation.check.tests):
        assert f"\ndef {name}(" in (ROOT / file).read_text()


def test_every_guarantee_has_a_planted_bug() -> None:
    guarantees = re.findall(r"^\| (.*?) \|.*\| `test_", (ROOT / "docs/guarantees.md").read_text(), re.MULTILINE)
    bugs = {mutation.promise for mutation in MUTATIONS}
    assert [each for each in guarantees if not each.startswith(tuple(bugs))] == []
    assert [each for each in bugs if sum(guarantee.startswith(each) for guarantee in guarantees) != 1] == []


def test_every_judge_but_three_finds_a_planted_bug() -> None:
    # More tasks at once than their limit need a crowd, an outage must be longer than a lease, and few tasks leave a
    # process behind: none of this is in every short run. Tests find these bugs.
    finders = {judge for mutation in MUTATIONS for judge in mutation.judges}
    left = {promise_of(judge) for judge in JUDGES} - finders
    assert left == {"limits hold", "an outage is nobodys crash", "nothing outlives its attempt"}
