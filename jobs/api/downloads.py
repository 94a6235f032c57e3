"""Files of a finished audit for those who do not reach the storage: its report, and the whole bundle as an archive.

A report shows names that a caller chose. It is sent as a download and with a content policy that lets nothing run in
the name of this server: opened from disk it works as ever.
"""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Iterator
from typing import IO

from fastapi import Response
from fastapi.responses import StreamingResponse

from jobs.submission.status import AuditStatus
from jobs.web.shares import UntilSent
from services import limits
from services.errors import NotFinished, Problem, StorageError
from services.storage import files

REPORT = "report.html"
CHUNK = 1 << 20
MOST = 4 << 30
"""Bytes of a bundle that is packed."""
IN_MEMORY = 8 << 20
"""Bytes of an archive that are not put on disk."""
SAFE = {
    "content-security-policy": "sandbox; default-src 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


def report(status: AuditStatus) -> Response:
    """The report as a file.

    Raises:
        NotFinished: the audit has none.
        StorageError: it cannot be read.
    """
    url = files.join(status.bundle, REPORT)
    if not files.exists(url):
        raise NotFinished(Problem(status.id, "an audit with a report", "one without", "download its bundle"))
    return Response(
        files.read_bytes(url, most=limits.FILE), media_type="text/html", headers=_as_file(f"{status.id}.html")
    )


def bundle(status: AuditStatus) -> Response:
    """All files of the bundle in a zip archive, in a folder with the name of the audit.

    Raises:
        StorageError: they cannot be read.
    """
    whole = (each for each in files.walk(status.bundle) if not re.search(r"(^|/)\.", each.path))  # not half written
    entries = list(whole)
    if (size := sum(entry.size for entry in entries)) > MOST:
        remedy = "copy it from the storage"
        raise StorageError(Problem(status.id, f"a bundle of at most {MOST:,} bytes", f"{size:,}", remedy))
    archive = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 closed once it is sent
    try:
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for entry in entries:
                data = files.read_bytes(files.join(status.bundle, entry.path), most=limits.FILE)
                packed.writestr(f"{status.id}/{entry.path}", data)
        size = archive.tell()
        archive.seek(0)
    except BaseException:
        archive.close()
        raise
    headers = {**_as_file(f"{status.id}.zip"), "content-length": str(size)}
    return UntilSent(StreamingResponse(_parts(archive), media_type="application/zip", headers=headers), archive.close)


def _parts(archive: IO[bytes]) -> Iterator[bytes]:
    while chunk := archive.read(CHUNK):
        yield chunk


def _as_file(name: str) -> dict[str, str]:
    """Headers of a download; an audit's id has no character that ends a quoted name."""
    return {**SAFE, "content-disposition": f'attachment; filename="{name}"'}
