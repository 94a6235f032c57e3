"""What was counted, as a text file for a collector: for audits without Ray, whose process is gone before it is scraped.

The node exporter of Prometheus reads such files from a folder; give each fleet a file of its own there.
"""

from __future__ import annotations

import logging
import os

from services.errors import StorageError
from services.storage import files
from services.telemetry import counters

VARIABLE = "CLASSWISE_METRICS_FILE"

_log = logging.getLogger("classwise.audit")


def write_metrics() -> None:
    """Write the file that CLASSWISE_METRICS_FILE names, whole; one that cannot be written costs no audit."""
    path = os.environ.get(VARIABLE)
    if path:
        try:
            files.write_bytes(path, counters.METER.text())
        except StorageError as error:
            _log.warning("%s: %s", VARIABLE, error)
