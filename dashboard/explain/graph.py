"""Lays out the graph of the tasks around a task: parents left of their children, without overlaps. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from firmq.shared.stores.dependencies import Dependence, Relations, Relative

WIDTH, HEIGHT = 150, 40
COLUMN, ROW = 210, 54
EDGE = 8


@dataclass(frozen=True, slots=True)
class Box:
    """A task in the graph."""

    relative: Relative
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Line:
    """An edge from a parent to a child, as an SVG path."""

    dependence: Dependence
    path: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """The boxes and edges with their positions in pixels."""

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    width: int
    height: int
    cut: bool


def draw(relations: Relations) -> Drawing | None:
    """Returns the drawing; None if the task has no relations."""
    if len(relations.relatives) < 2:
        return None
    columns: dict[int, list[str]] = defaultdict(list)
    for task_id, column in _columns(relations).items():
        columns[column].append(task_id)
    tallest = max(len(ids) for ids in columns.values())
    boxes = {
        task_id: Box(
            relations.relatives[task_id], EDGE + column * COLUMN, EDGE + at * ROW + (tallest - len(ids)) * ROW // 2
        )
        for column, ids in columns.items()
        for at, task_id in enumerate(ids)
    }
    lines = tuple(Line(each, _path(boxes[each.parent], boxes[each.child])) for each in relations.dependences)
    width = 2 * EDGE + (max(columns) * COLUMN) + WIDTH
    return Drawing(tuple(boxes.values()), lines, width, 2 * EDGE + tallest * ROW - (ROW - HEIGHT), relations.cut)


def _columns(relations: Relations) -> Mapping[str, int]:
    """Returns the column of each task, right of all its parents. Terminates on a cycle, which only corruption makes."""
    column = dict.fromkeys(relations.relatives, 0)
    for _ in range(len(column)):
        moved = False
        for each in relations.dependences:
            if column[each.child] <= column[each.parent] < len(column):
                column[each.child] = column[each.parent] + 1
                moved = True
        if not moved:
            break
    used = {each: at for at, each in enumerate(sorted(set(column.values())))}
    return {task_id: used[each] for task_id, each in column.items()}


def _path(parent: Box, child: Box) -> str:
    x1, y1, x2, y2 = parent.x + WIDTH, parent.y + HEIGHT // 2, child.x, child.y + HEIGHT // 2
    half = max(20, (x2 - x1) // 2)
    return f"M{x1} {y1}C{x1 + half} {y1} {x2 - half} {y2} {x2} {y2}"
