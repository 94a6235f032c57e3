"""A board as a table for the terminal, 80 columns wide or as wide as there is room, and what must be known under it."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracking.leaderboard.numbers import decimals
from tracking.leaderboard.rows import NOT_MEASURED, Board, Entry, Metric, Standing
from tracking.names import shorten

WIDTH = 80
MOST_ROWS = 60
MOST_METRICS = 8
"""Metrics with a column of their own; the files have all of them."""
LEGEND = (
    "score: weighted mean of the metrics, each scaled from 0, the worst row here, to 1, the best.",
    "= not separated from the first: their ranges overlap, ? a range is unknown. * on the Pareto front. † published.",
)
WIDE = "wide: the range is wider than the scale, as where rows hardly differ in a metric; --csv has its numbers"
_NAME, _RANGE = 12, 10
"""The least room for names, and what the score's range takes."""


def board_text(board: Board, width: int = WIDTH) -> RenderableType:
    """The table, what its columns are read from, and the notes."""
    columns = [_described(metric) for metric in _shown(board)]
    columns += (
        [f"worst, NRGC: worst class, inequality between classes of {board.lens}"] if _classes_known(board) else []
    )
    return Group(
        Text(shorten(board.title, width), style="bold"),
        board_table(board, width),
        Text("; ".join(columns), style="dim"),
        *(Text(f"note: {note}") for note in board.notes),
        *([Text(WIDE, style="dim")] if any(standing.wide for standing in board.standings) else []),
        Text(),
    )


def board_table(board: Board, width: int = WIDTH) -> Table:
    """One row a model or group of seeds, best first."""
    rows = [_row(board, *pair) for pair in zip(board.entries, board.standings, strict=True)][:MOST_ROWS]
    names = ["", "model", "n", "score", "low to high", *(_head(metric) for metric in _shown(board)), "worst", "NRGC"]
    kept = [place for place in range(len(names)) if place not in _dropped(board, names, rows, width)]
    room = width - 1 - sum(_width(names, rows, place) + 1 for place in kept if place != 1)
    table = Table(box=SIMPLE_HEAD, padding=0)
    table.pad_edge = False
    for place in kept:
        text = place == 1
        wide = max(4, room - 1) if text else None
        table.add_column(names[place], justify="left" if text else "right", no_wrap=True, max_width=wide)
    for row in rows:
        table.add_row(*(Text(shorten(row[place], max(4, room - 1)) if place == 1 else row[place]) for place in kept))
    if len(board.entries) > MOST_ROWS:
        table.caption = f"{MOST_ROWS} of {len(board.entries)} rows; --csv, --parquet and --html have all of them"
    return table


def _classes_known(board: Board) -> bool:
    return any(key in entry.numbers for entry in board.entries for key in board.class_keys)


def _shown(board: Board) -> list[Metric]:
    return [metric for metric in board.metrics if metric.weight > 0][:MOST_METRICS]


def _described(metric: Metric) -> str:
    """What a column is read from: ``ge_ar: ge/pgd20/linf-0.03137, lower is better``."""
    weight = f"weight {metric.weight:g}" if metric.weight != 1 else ""
    lower = "lower is better" if metric.lower_is_better else ""
    return ", ".join(part for part in (f"{metric.name}: {metric.number.short}", lower, weight) if part)


def _head(metric: Metric) -> str:
    return shorten(metric.name, 9).replace("_", "\n").replace("probacc", "prob\nacc")


def _row(board: Board, entry: Entry, standing: Standing) -> list[str]:
    score = standing.score
    unknown = score.low is None or score.high is None
    place = "–" if standing.place is None else str(standing.place)
    separated = "" if standing.place in (None, 1) else {True: "=", None: "?", False: ""}[standing.with_leader]
    marks = separated + ("*" if standing.front else "") + ("†" if entry.source else "")
    numbers = [metric.number for metric in _shown(board)]
    of_classes = [decimals(entry.numbers.get(key, NOT_MEASURED).value) for key in board.class_keys]
    return [
        f"{place}{marks}",
        entry.name,
        str(entry.count),
        decimals(score.value),
        "–" if unknown else "wide" if standing.wide else f"{decimals(score.low)} {decimals(score.high)}",
        *(number.formatted(entry.numbers.get(number.key, NOT_MEASURED).value) for number in numbers),
        *of_classes,
    ]


def _dropped(board: Board, names: list[str], rows: list[list[str]], width: int) -> set[int]:
    """Columns that say nothing here, and the score's range where it leaves too little room for names."""
    dropped = set() if any(entry.count > 1 for entry in board.entries) else {2}
    last = len(names) - 1
    dropped |= {place for place in (last - 1, last) if all(row[place] == "–" for row in rows)}
    taken = sum(_width(names, rows, place) + 1 for place in range(len(names)) if place != 1 and place not in dropped)
    return dropped | ({4} if width - 1 - taken < _NAME + 1 else set())


def _width(names: list[str], rows: list[list[str]], place: int) -> int:
    cells = [*names[place].split("\n"), *(row[place] for row in rows)]
    return max(len(cell) for cell in cells)
