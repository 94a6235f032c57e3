"""The page: one HTML file with scripts and styles of this application, and plotly as its package ships it.

It holds no data and needs no token, and it needs no network beyond this server. Nothing is executed but what is served
here: the content policy allows no inline script and no other source. Styles may be inline, for plotly writes some.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path

from fastapi import APIRouter, Request, Response

from services.metrics import OF_SERIES
from tracking.figures.palette import LINES
from tracking.report.markup import source

STATIC = Path(__file__).parent / "static"
KINDS = {".js": "text/javascript", ".css": "text/css"}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
SHARED = {"common.js": ("common.js", "composite.js"), "report.css": ("report.css",)}
"""What the report and the leaderboard page are made of, too."""
PLOTLY = "plotly.js"
NAMES = (*sorted(path.name for path in STATIC.iterdir() if path.suffix in KINDS), *SHARED, PLOTLY)
PAGE_PATHS = frozenset({"/", *(f"/ui/{name}" for name in NAMES)})


def page_routes() -> APIRouter:
    """The page at ``/`` and its files below ``/ui``; all are open."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    def page() -> Response:
        return Response(_page(), media_type="text/html", headers={**HEADERS, "cache-control": "no-cache"})

    def add(name: str) -> None:
        @router.get(f"/ui/{name}")
        def file(request: Request) -> Response:
            return _file(name, request)

    for name in NAMES:
        add(name)
    return router


def _file(name: str, request: Request) -> Response:
    """A static file: asked for again only to hear that it has not changed."""
    data, packed, tag = _content(name)
    headers = {**HEADERS, "etag": tag, "cache-control": "no-cache", "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        data, headers["content-encoding"] = packed, "gzip"
    return Response(data, media_type=KINDS[Path(name).suffix], headers=headers)


@cache
def _content(name: str) -> tuple[bytes, bytes, str]:
    """A file as it is, compressed, and its tag."""
    if name == PLOTLY:
        from plotly.offline import get_plotlyjs

        data = get_plotlyjs().encode()
    elif name in SHARED:
        data = str(source(*SHARED[name])).encode()
    else:
        data = (STATIC / name).read_bytes()
    return data, gzip.compress(data, 6), f'"{sha256(data).hexdigest()[:20]}"'


def _page() -> str:
    words = {each.name: [each.short, each.phrase.format(group="class", groups="classes")] for each in OF_SERIES}
    page = (STATIC / "page.html").read_text(encoding="utf-8")
    return page.replace("PALETTE", escape(" ".join(LINES))).replace("METRICS", escape(json.dumps(words)))
