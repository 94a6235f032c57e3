"""PNG files of charts, drawn when they are asked for and kept by content: a repeated audit draws what changed."""

from __future__ import annotations

from importlib.metadata import version

from services.errors import StorageError
from services.records import digest_of
from services.storage import files
from tracking.figures.charts import Chart

DRAWING_VERSION = 1
"""Raised when the same chart would be drawn differently."""


class Pictures:
    """Charts as PNG.

    Args:
        storage: of the fleet, whose cache keeps what was drawn; "" keeps nothing.
    """

    def __init__(self, storage: str = "") -> None:
        self._storage = storage

    def png(self, chart: Chart) -> bytes:
        """The chart as a PNG file: the one that was drawn of the same chart before, where it was kept."""
        if not self._storage:
            return _drawn(chart)
        key = digest_of("figure", DRAWING_VERSION, version("matplotlib"), repr(chart))
        path = files.join(self._storage, "cache", "figures", key[:2], f"{key}.png")
        if files.exists(path):
            try:
                return files.read_bytes(path)
            except StorageError:  # removed in between
                pass
        data = _drawn(chart)
        files.write_bytes(path, data)
        return data


ANEW = Pictures()
"""Draws every chart and keeps none."""


def _drawn(chart: Chart) -> bytes:
    from tracking.figures.png import png_bytes  # matplotlib takes half a second to import

    return png_bytes(chart)
