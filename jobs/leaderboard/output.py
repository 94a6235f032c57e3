"""What a leaderboard becomes: tables for the terminal, JSON, CSV, Parquet and a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.leaderboard.leaderboard import Leaderboard
from services.records import SCHEMA_VERSION
from services.storage import files
from tracking.leaderboard.rows import board_json, csv_text, fill_parquet
from tracking.leaderboard.terminal import LEGEND, board_text

if TYPE_CHECKING:
    from rich.console import RenderableType


def parts(leaderboard: Leaderboard, width: int) -> list[RenderableType]:
    """The boards as tables, and the legend."""
    from rich.text import Text

    return [*(board_text(board, width) for board in leaderboard.boards), *(Text(line, style="dim") for line in LEGEND)]


def look(leaderboard: Leaderboard) -> list[str]:
    """The notes on all boards, and what was read."""
    models = "1 model" if leaderboard.models == 1 else f"{leaderboard.models} models"
    runs = "1 complete run" if leaderboard.runs == 1 else f"{leaderboard.runs} complete runs"
    return [*(f"note: {note}" for note in leaderboard.notes), f"{models}, {runs} read from {leaderboard.source}"]


def as_json(leaderboard: Leaderboard) -> dict[str, Any]:
    """The boards with everything in them."""
    return {
        "schema_version": SCHEMA_VERSION,
        "source": leaderboard.source,
        "runs": leaderboard.runs,
        "models": leaderboard.models,
        "notes": list(leaderboard.notes),
        "boards": [board_json(board) for board in leaderboard.boards],
    }


def write_files(leaderboard: Leaderboard, *, csv: str | None, parquet: str | None, html: str | None) -> list[str]:
    """Write the files that were asked for, each whole or not at all; returns where to look.

    Raises:
        StorageError: a file cannot be written.
    """
    boards = list(leaderboard.boards)
    if csv:
        files.write_bytes(csv, csv_text(boards).encode("utf-8", "replace"))
    if parquet:
        files.write(parquet, lambda file: fill_parquet(boards, file))
    if html:
        from tracking.leaderboard.page import render

        page = render(boards, store=leaderboard.source, notes=leaderboard.notes)
        files.write_bytes(html, page.encode("utf-8", "replace"))
    named = {"csv": csv, "parquet": parquet, "page": html}
    return [f"{kind:<8} {path}" for kind, path in named.items() if path]
