"""How a planted bug is looked for, and by what is said afterwards who has found it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SEED = 3
PATIENCE = 30
"""Seconds without any change after which what still waits is stuck, on a busy machine too: ten leases."""


@dataclass(frozen=True, slots=True)
class Check:
    """The laboratory with these faults for so many seconds, or these tests."""

    faults: tuple[str, ...] = ()
    seconds: float = 0.0
    tests: tuple[str, ...] = ()
    """Each as pytest calls it: file::name."""

    def __str__(self) -> str:
        return f"laboratory: {', '.join(self.faults)}" if self.faults else f"{len(self.tests)} tests"

    def command(self, folder: str) -> list[str]:
        """What `python -m` makes it with; figures of the laboratory go into the folder."""
        if self.tests:
            return ["pytest", "-q", "-p", "no:cacheprovider", *self.tests]
        how_long = ["--seeds", str(SEED), "--minutes", f"{self.seconds / 60:.3f}", "--patience", str(PATIENCE)]
        return ["tests.labs.faults", *how_long, "--small", "--results", folder, "--faults", *self.faults]

    def finders(self, judges: Iterable[str], said: str) -> tuple[str, ...]:
        """Who has found something, of these judges or of the tests; others do not count."""
        names = {f"BROKEN: {each} (": each for each in judges}
        names |= {f"FAILED {address}": address.partition("::")[2] for address in self.tests}
        return tuple(name for words, name in names.items() if words in said)
