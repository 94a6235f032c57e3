"""An application that says who called, behind what a test puts before it."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, Router

from jobs.web.access import caller_of


@pytest.fixture
def inner() -> Any:
    async def said(request: Request) -> PlainTextResponse:
        body = await request.body()
        return PlainTextResponse(f"{caller_of(request).name} {len(body)} {request.headers.get('x-user')}")

    return Router(routes=[Route("/{path:path}", said, methods=["GET", "POST"])])
