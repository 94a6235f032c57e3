"""The dashboard's data under ``/v1``: lists that end, and one audit, model or comparison at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial, wraps
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.security import HTTPBearer
from pydantic import BaseModel

from jobs.dashboard.answers import (
    AuditBody,
    AuditPage,
    ClassMatrix,
    Comparison,
    Failures,
    FleetBody,
    FleetList,
    Hardest,
    LeaderboardBody,
    Links,
    Metric,
    ModelCard,
    Running,
    ScheduleList,
    Trend,
    WhyBody,
)
from jobs.dashboard.bundles import Home, fleet_of, unknown_fleet
from jobs.dashboard.side_by_side import cautions, class_differences, model_differences
from jobs.dashboard.stores import FAILURES, PRESETS, Stores
from jobs.dashboard.views import (
    Reading,
    Scores,
    brackets,
    chosen,
    class_rows,
    gap_bodies,
    gate_tallies,
    head,
    matrix,
    model_rows,
    problem_body,
    series_body,
    series_names,
    trend,
)
from jobs.web.access import Right, Who, caller_of
from jobs.web.problems import refused
from jobs.web.shares import Turns
from services.errors import Problem, StorageError, UnknownAudit
from tracking.bundle.classes import GroupRow
from tracking.bundle.marker import uploads
from tracking.bundle.overview import ModelOverview, Overview, SeriesOverview

MOST_CLASSES = 2000
MOST_BRACKETS = 40
COMPUTING = 2
"""Threads that read bundles and make answers of them."""
WAITING = 2
"""Threads that wait for MLflow, as many for the database of schedules, and as many for how audits stand."""
NAME = r"^[A-Za-z0-9_.\-]{1,120}$"

Wrap = Callable[[Callable[..., BaseModel]], Callable[..., Any]]
FleetName = Annotated[str, Path(alias="fleet", pattern=NAME, description="A fleet's `id` of /v1/fleets.")]
AuditName = Annotated[str, Path(alias="audit", pattern=NAME, description="An audit's `id`.")]
Lens = Annotated[str, Query(alias="series", max_length=300, description="A `lens`; the first one by default.")]
Offset = Annotated[int, Query(ge=0, le=1_000_000)]


def dashboard_routes(stores: Stores, share: Callable[[int], int] = lambda most: most) -> APIRouter:
    """All routes of the dashboard's data; they need a token.

    Args:
        share: how many of what there are so many one caller may hold.
    """
    token = HTTPBearer(auto_error=False, description="As for submissions.")
    router = APIRouter(
        prefix="/v1", dependencies=[Depends(token), Depends(own)], responses=refused(401, 403, 413, 422, 429, 503)
    )
    computing = APIRouter(dependencies=[Depends(in_turn(Turns(share(COMPUTING))))])
    pages, few = Pages(stores), in_few_threads(CapacityLimiter(COMPUTING))
    _add_lists(computing, pages, few)
    _add_audit(computing, pages, few)
    _add_comparison(computing, pages, few)
    router.include_router(computing)
    _add_now(router, stores)
    return router


def in_turn(turns: Turns) -> Callable[[Request], AsyncIterator[None]]:
    """A dependency of routes, which wait behind requests of the same caller alone."""

    async def turn(request: Request) -> AsyncIterator[None]:
        end = await turns.begin(caller_of(request).name)
        try:
            yield
        finally:
            end()

    return turn


def in_few_threads(limiter: CapacityLimiter) -> Wrap:
    """Routes in threads of their own, which write the answers, too: many that compute side by side keep the loop, and
    so the liveness probe, from its turn, and many that wait keep all others waiting."""

    def wrapped(route: Callable[..., BaseModel]) -> Callable[..., Any]:
        @wraps(route)
        async def call(**given: Any) -> Response:
            return await to_thread.run_sync(lambda: _as_json(route(**given)), limiter=limiter)

        return call

    return wrapped


async def own(request: Request) -> None:
    """A reader, and where a fleet is named one of theirs; one of others is not there."""
    caller, fleet = caller_of(request), request.path_params.get("fleet")
    caller.require(Right.READ)
    if fleet is not None and not caller.sees(fleet_of(fleet)):
        raise unknown_fleet(fleet)


class Pages:
    """What the routes do, without HTTP."""

    def __init__(self, stores: Stores) -> None:
        self.bundles = stores.bundles

    def overview(self, folder: str) -> Reading:
        """An overview, or why there is none."""
        try:
            return self.bundles.read(folder)
        except StorageError as error:
            return error

    def part(self, home: Home, offset: int, limit: int) -> list[str]:
        """Folders of some complete audits of a fleet, the latest first."""
        folders = [home.folder(name) for name in home.audits[offset : offset + limit]]
        return [folder for folder in folders if self.bundles.is_complete(folder)]

    def fleet(self, name: str) -> FleetBody:
        """A fleet that was listed, with its latest audit; named as its people spell it when that can be read."""
        home = self.bundles.known(name)
        latest = self.latest(home, 0)
        shown = self.bundles.head(latest) if latest else None
        spelled = (shown.fleet if shown else "") or name
        return FleetBody(id=name, name=spelled, audits=len(home.audits), latest=shown)

    def latest(self, home: Home, start: int) -> str:
        """The folder of the latest complete audit from that place of the list on; empty when there is none."""
        folders = (home.folder(name) for name in home.audits[start:])
        return next((folder for folder in folders if self.bundles.is_complete(folder)), "")

    def before(self, home: Home, audit: str) -> str:
        """The complete audit before this one; empty when there is none."""
        return self.latest(home, home.audits.index(audit) + 1).rpartition("/")[2]

    def groups(self, folder: str, model: ModelOverview | None, lens: str) -> list[GroupRow]:
        """A model's classes under a lens; none where it was not measured."""
        series = model.find(lens) if model else None
        return self.bundles.groups(folder, model, series) if model is not None and series is not None else []


def _add_lists(router: APIRouter, pages: Pages, few: Wrap) -> None:
    @router.get("/fleets", summary="The fleets, each with its latest audit")
    @few
    def fleets(caller: Who, limit: Annotated[int, Query(ge=1, le=500)] = 100, offset: Offset = 0) -> FleetList:
        names = [name for name in pages.bundles.fleets() if caller.sees(fleet_of(name))]
        return FleetList(fleets=[pages.fleet(name) for name in names[offset : offset + limit]], total=len(names))

    @router.get("/fleets/{fleet}/audits", summary="The audits of a fleet, the latest first", responses=refused(404))
    @few
    def audits(name: FleetName, limit: Annotated[int, Query(ge=1, le=500)] = 50, offset: Offset = 0) -> AuditPage:
        home = pages.bundles.home(name)
        heads = [pages.bundles.head(folder) for folder in pages.part(home, offset, limit)]
        spelled = next((audit.fleet for audit in heads if audit.fleet), name)
        return AuditPage(fleet=spelled, audits=heads, total=len(home.audits))

    @router.get("/fleets/{fleet}/trend", summary="One number of each model over the audits", responses=refused(404))
    @few
    def over_time(
        name: FleetName,
        lens: Lens = "",
        metric: Metric = "wcr",
        model: Annotated[str, Query(max_length=200, description="Only models whose names contain this.")] = "",
        limit: Annotated[int, Query(ge=1, le=200, description="Audits, the latest.")] = 50,
        most: Annotated[int, Query(ge=1, le=200, description="Models, those that do not pass first.")] = 40,
    ) -> Trend:
        home = pages.bundles.home(name)
        part = pages.part(home, 0, limit)[::-1]
        overviews = [(folder.rpartition("/")[2], pages.overview(folder)) for folder in part]
        return trend(name, overviews, lens, metric, model, most, len(home.audits))


def _add_audit(router: APIRouter, pages: Pages, few: Wrap) -> None:
    bundles = pages.bundles

    @router.get("/fleets/{fleet}/audits/{audit}", summary="One audit, a row a model", responses=refused(404))
    @few
    def audit(fleet: FleetName, name: AuditName, lens: Lens = "") -> AuditBody:
        home = bundles.home(fleet)
        folder = home.folder(name)
        return _audit_body(name, bundles.read(folder), folder, lens, pages.before(home, name))

    @router.get("/fleets/{fleet}/audits/{audit}/classes", summary="Its classes by its models", responses=refused(404))
    @few
    def classes(
        fleet: FleetName,
        name: AuditName,
        lens: Lens = "",
        worst: Annotated[int, Query(ge=1, le=200, description="So many of the weakest classes.")] = 30,
        most: Annotated[int, Query(ge=1, le=200, description="Models, the first of the audit's table.")] = 200,
    ) -> ClassMatrix:
        folder = bundles.home(fleet).folder(name)
        overview = bundles.read(folder)
        series = chosen(overview, lens)
        if series is None:
            return ClassMatrix(lens="", title="", classes=[], models=[], values=[], total=0, problems=[])
        models = [overview.models[row.index] for row in model_rows(overview, series.lens)]
        measured = [model for model in models if model.find(series.lens)][:most]
        return _matrix(pages, folder, series, measured, worst)

    @router.get("/fleets/{fleet}/audits/{audit}/hardest", summary="What most models fail", responses=refused(404))
    @few
    def hardest(fleet: FleetName, name: AuditName) -> Hardest:
        return bundles.hardest(bundles.home(fleet).folder(name))

    @router.get("/fleets/{fleet}/audits/{audit}/models/{model}", summary="A model's card", responses=refused(404))
    @few
    def card(
        fleet: FleetName,
        name: AuditName,
        index: Annotated[int, Path(alias="model", ge=0, le=100_000, description="A row's `index`.")],
        lens: Lens = "",
        most: Annotated[int, Query(ge=1, le=MOST_CLASSES, description="Classes, the weakest.")] = 200,
    ) -> ModelCard:
        return _card(pages, bundles.home(fleet).folder(name), index, lens, most)

    @router.get("/fleets/{fleet}/audits/{audit}/models/{model}/why", summary="Its confusions", responses=refused(404))
    @few
    def why(fleet: FleetName, name: AuditName, index: Annotated[int, Path(alias="model", ge=0, le=100_000)]) -> WhyBody:
        return bundles.why(bundles.home(fleet).folder(name), index)


def _add_comparison(router: APIRouter, pages: Pages, few: Wrap) -> None:
    @router.get("/fleets/{fleet}/comparison", summary="Two audits side by side", responses=refused(404))
    @few
    def comparison(
        fleet: FleetName,
        before: Annotated[str, Query(pattern=NAME, description="The earlier audit's `id`.")],
        after: Annotated[str, Query(pattern=NAME, description="The later audit's `id`.")],
        lens: Lens = "",
        model: Annotated[str, Query(max_length=20_000, description="Whose classes; by default the first.")] = "",
        most: Annotated[int, Query(ge=1, le=MOST_CLASSES, description="Classes, the largest losses.")] = 200,
    ) -> Comparison:
        home = pages.bundles.home(fleet)
        earlier, later = home.folder(before), home.folder(after)
        old, new = pages.bundles.read(earlier), pages.bundles.read(later)
        series = chosen(new, lens)
        shown = series.lens if series else ""
        named, (first, second) = _common(old, new, model)
        classes = class_differences(pages.groups(earlier, first, shown), pages.groups(later, second, shown))
        return Comparison(
            before=head(before, old),
            after=head(after, new),
            lens=shown,
            series=series_names(new),
            models=model_differences(old, new, shown),
            model=named,
            classes=classes[:most],
            total=len(classes),
            notes=cautions(old, new, old.lenses.get(shown), series),
            tested=pages.bundles.tested(later),
        )


def _add_now(router: APIRouter, stores: Stores) -> None:
    # The storage, MLflow and the database may hang: threads of their own wait for each.
    of_storage, of_database, of_mlflow = (in_few_threads(CapacityLimiter(WAITING)) for _ in range(3))

    @router.get("/progress", summary="Audits that wait or run, with how far they are")
    @of_storage
    def progress(caller: Who) -> Running:
        known = stores.running()
        return known.model_copy(update={"running": [each for each in known.running if caller.sees(each.fleet)]})

    @router.get("/failures", summary="Submitted audits that ended without a result, of ten seconds ago at most")
    @of_storage
    def failures(caller: Who) -> Failures:
        known = stores.failures()
        mine = [each for each in known.failures if caller.sees(each.fleet)]
        return known.model_copy(update={"failures": mine[:FAILURES]})

    @router.get("/schedules", summary="Schedules with their next firings")
    @of_database
    def schedules(caller: Who) -> ScheduleList:
        known = stores.schedules()
        return known.model_copy(update={"schedules": [each for each in known.schedules if caller.sees(each.fleet)]})

    @router.get("/leaderboard", summary="Models ranked from their MLflow runs, of a minute ago at most")
    @of_mlflow
    def leaderboard(
        caller: Who,
        preset: Annotated[str, Query(pattern=f"^({'|'.join(PRESETS)})$")] = PRESETS[0],
    ) -> LeaderboardBody:
        return stores.leaderboard(preset, None if caller.sees_all else caller.sees)


def _as_json(body: BaseModel) -> Response:
    return Response(body.model_dump_json(), media_type="application/json")


def _audit_body(name: str, overview: Overview, folder: str, lens: str, earlier: str) -> AuditBody:
    series = chosen(overview, lens)
    upload: dict[str, object] = next(reversed(uploads(folder)), {})
    return AuditBody(
        head=head(name, overview),
        fleet=overview.fleet,
        verdict=overview.verdict,
        words=list(overview.words),
        advice=list(overview.advice),
        why=list(overview.why),
        steps=list(overview.steps),
        gates=gate_tallies(overview),
        samples=overview.samples,
        content=overview.content,
        compared_with=overview.compared_with,
        versions=overview.versions,
        lens=series.lens if series else "",
        series=series_names(overview),
        models=model_rows(overview, series.lens if series else ""),
        earlier=earlier,
        links=Links(folder=folder, run_url=str(upload.get("url") or ""), mlflow=str(upload.get("tracking_uri") or "")),
    )


def _card(pages: Pages, folder: str, index: int, lens: str, most: int) -> ModelCard:
    overview = pages.bundles.read(folder)
    if index >= len(overview.models):
        raise UnknownAudit(Problem("model", f"below {len(overview.models)}", str(index)))
    model = overview.models[index]
    series = chosen(overview, lens)
    shown = series.lens if series else ""
    rows = class_rows(pages.groups(folder, model, shown))
    return ModelCard(
        head=head(folder.rpartition("/")[2], overview),
        index=index,
        name=model.name,
        outcome=model.outcome,
        reasons=list(model.reasons),
        gates=list(model.gates),
        threat=model.threat,
        digest=model.digest,
        notes=list(model.notes),
        attacks=list(model.attacks),
        gaps=gap_bodies(model),
        lens=shown,
        series=[series_body(result) for result in model.series],
        classes=rows[:most],
        total=len(rows),
        brackets=brackets(model, overview.pixels, partial(pages.bundles.scores, folder, model), MOST_BRACKETS),
    )


def _matrix(pages: Pages, folder: str, series: SeriesOverview, models: list[ModelOverview], worst: int) -> ClassMatrix:
    scores: list[Scores] = []
    problems = []
    for model in models:
        own = model.find(series.lens) or series
        try:
            scores.append(pages.bundles.scores(folder, model, own))
        except StorageError as error:
            scores.append({})
            problems.append(problem_body(error))
    return matrix(series, models, scores, worst, problems)


def _common(old: Overview, new: Overview, wanted: str) -> tuple[str, tuple[ModelOverview | None, ModelOverview | None]]:
    """The model whose classes are compared, in both audits.

    Raises:
        UnknownAudit: neither audit has a model of the name that was asked for.
    """
    first, second = ({model.name: model for model in audit.models} for audit in (old, new))
    if wanted and wanted not in first and wanted not in second:
        raise UnknownAudit(Problem("model", "a model of one of the audits", repr(wanted)[:120]))
    named = wanted or next((name for name in second if name in first), "")
    return named, (first.get(named), second.get(named))
