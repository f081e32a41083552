"""What the README and the pages under docs/ say, for tests that hold it against the product."""

from __future__ import annotations

from tests.support.harness import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
DOCUMENTS = "\n".join(page.read_text() for page in PAGES)
