"""From single runs to medians and spreads."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.labs.bench.adapter import BY_DEFAULT
from tests.labs.bench.workloads import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One workload on one system in one round: its numbers, or why there are none."""

    round: int
    workload: str
    system: str
    metrics: Metrics = field(default_factory=dict)
    failed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What is known of a system before it is measured; `failed` when it could not be installed or imported."""

    name: str
    title: str
    versions: dict[str, str] = field(default_factory=dict)
    workloads: tuple[str, ...] = ()
    failed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median of the rounds, and the lowest and highest round."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        return cls(median=statistics.median(values), low=min(values), high=max(values), rounds=len(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A whole session, as it is written to results.json."""

    machine: dict[str, Any]
    options: dict[str, Any]
    cards: list[Card]
    runs: list[Run]

    def spread(self, system: str, workload: str, metric: str) -> Spread | None:
        chosen = self._chosen(system, workload)
        values = [run.metrics[metric] for run in chosen if metric in run.metrics]
        return Spread.of(values) if values else None

    def failure(self, system: str, workload: str) -> str | None:
        """Why a number is missing, or why fewer rounds are behind it than behind the others."""
        return next((run.failed for run in self._chosen(system, workload) if run.failed), None)

    def ranked(self, workloads: Iterable[str]) -> list[Card]:
        """Those that these workloads are for (or that could not be asked), the fastest first, then by name."""
        shown = set(workloads) & self.workloads()
        by = "drain" if shown.intersection(BY_DEFAULT) else "waiting"
        cards = [card for card in self.cards if card.failed or shown.intersection(card.workloads)]
        return sorted(cards, key=lambda card: (-self._speed(card.name, by), card.name))

    def workloads(self) -> set[str]:
        return {run.workload for run in self.runs}

    def highest(self, metric: str) -> Spread | None:
        """Over every run of the session, for what describes the session and not a system."""
        values = [run.metrics[metric] for run in self.runs if metric in run.metrics]
        return Spread.of(values) if values else None

    def _speed(self, system: str, workload: str) -> float:
        speed = self.spread(system, workload, "tasks_per_second")
        return speed.median if speed else 0.0

    def _chosen(self, system: str, workload: str) -> Iterable[Run]:
        return (run for run in self.runs if run.system == system and run.workload == workload)
