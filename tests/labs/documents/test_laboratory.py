"""The documents that the product comes from can be typed as they are, or a page says what to type."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.labs.documents.laboratory import rows, system, try_all


@pytest.mark.timeout(300)
def test_each_row_is_as_the_data_file_says(tmp_path: Path) -> None:
    with system(tmp_path) as running:
        found = list(try_all(running, tmp_path))
    print(Counter(each.verdict.partition(":")[0] for each in found))
    assert [f"{each.row.document} {each.row.text}: {each.wrong}" for each in found if each.wrong] == []


def test_rows_of_each_document_are_tried() -> None:
    counts = Counter(each.document for each in rows() if each.kind != "none")
    assert {name for name, count in counts.items() if count > 3} == {"000", "002", "003", "004"}
