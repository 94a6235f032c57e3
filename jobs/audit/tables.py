"""The tables of an audit: filled on workers, filled again where they were deleted meanwhile, and marked as used.

Emptying the cache beside a running audit costs it time and nothing else: what is gone is computed again. What an
audit uses is noted in ``cache/used/AUDIT_ID.json``, by which `classwise prune` knows the last use of each table on any
storage; access times are not kept by object stores, and many file systems do not either.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from jobs.audit import plan, probes
from jobs.audit.judging.model_result import Judge, model_result
from jobs.audit.probes import ProbeSeen
from jobs.audit.session import Session
from jobs.audit.why.gallery import gallery_tasks
from jobs.audit.why.slices import embedding_folder, embedding_tasks
from services.errors import Problem, StorageError
from services.records import SCHEMA_VERSION, ModelResult, Receipt, ShardTask
from services.storage import files

ROUNDS = 3
"""How often tables may be deleted under an audit."""

USED = "used"
Tasks = Callable[[plan.ModelPlan], list[ShardTask]]


def fill_logits(plans: Sequence[plan.ModelPlan], context: plan.Context, session: Session) -> None:
    """Run the forward passes that are not in the cache."""
    tasks = [task for item in plans for task in plan.logits_tasks(item, context)]
    session.run("logits", tasks, rows=len(plans) * context.count)


def fill_scores(plans: Sequence[plan.ModelPlan], context: plan.Context, session: Session) -> None:
    """Compute the score tables that are not in the cache; their logits are there."""
    tables = sum(len(item.tables) for item in plans)
    on_logits("measures", lambda item: plan.measure_tasks(item, context), plans, context, session, tables)


def fill_pictures(plans: Sequence[plan.ModelPlan], context: plan.Context, session: Session) -> None:
    """Draw the pictures that are not in the cache; no stage begins where there are none to draw."""
    alive = [item for item in plans if session.alive(item.spec.name)]
    kinds = (plan.picture_tasks, gallery_tasks, embedding_tasks)
    if tasks := [task for tasks_of in kinds for item in alive for task in tasks_of(item, context)]:
        session.run("pictures", tasks)


def fill_probes(
    plans: Sequence[plan.ModelPlan], context: plan.Context, session: Session, delta: float
) -> dict[str, ProbeSeen]:
    """Run the probes of attacks that are not in the cache; tables that were deleted are made again first."""
    for _ in range(ROUNDS - 1):
        try:
            return probes.fill_probes(plans, context, session, delta)
        except StorageError:
            if not any(tasks(item, context) for item in plans for tasks in (plan.logits_tasks, plan.measure_tasks)):
                raise
            fill_logits(plans, context, session)
            fill_scores(plans, context, session)
    return probes.fill_probes(plans, context, session, delta)


def on_logits(
    stage: str,
    tasks_of: Tasks,
    plans: Sequence[plan.ModelPlan],
    context: plan.Context,
    session: Session,
    tables: int,
) -> list[Receipt]:
    """Run tasks that read logits; of models whose logits are gone when they are read, both again.

    Raises:
        StorageError: they were deleted time and again.
    """
    receipts: list[Receipt] = []
    todo, rows = list(plans), tables * context.count
    for _ in range(ROUNDS):
        receipts += session.run(stage, [task for item in todo for task in tasks_of(item)], rows=rows)
        lost, rows = session.take_lost(), 0
        todo = [item for item in todo if item.spec.name in lost]
        if not todo:
            return receipts
        receipts = [receipt for receipt in receipts if receipt.task.model.name not in lost]
        fill_logits(todo, context, session)
    actual = f"those of {', '.join(item.spec.name for item in todo[:3])} deleted {ROUNDS} times"
    raise StorageError(
        Problem(context.cache, "tables that stay", actual, "run the audit when nothing empties the cache")
    )


def judged(item: plan.ModelPlan, index: int, judge: Judge, session: Session) -> ModelResult:
    """The result of one model; when a table was deleted before it was read, it is made again first."""
    for _ in range(ROUNDS - 1):
        try:
            return model_result(item, index, judge)
        except StorageError:
            missing = (plan.logits_tasks, plan.measure_tasks, plan.picture_tasks, gallery_tasks, embedding_tasks)
            if not any(tasks(item, judge.context) for tasks in missing):
                raise
            for fill in (fill_logits, fill_scores, fill_pictures):
                fill([item], judge.context, session)
    return model_result(item, index, judge)


def note_use(paths: Iterable[str], context: plan.Context, audit_id: str) -> None:
    """Write down which files and folders of the cache this audit uses, and when."""
    prefix = f"{context.cache}/"
    used = sorted(path.removeprefix(prefix) for path in paths)
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    body = {"schema_version": SCHEMA_VERSION, "audit_id": audit_id, "at": moment, "used": used}
    files.write_bytes(files.join(context.cache, USED, f"{audit_id}.json"), json.dumps(body).encode())


def folders_of(plans: Sequence[plan.ModelPlan], context: plan.Context) -> set[str]:
    """What these plans use of the cache."""
    tables = {table.folder for item in plans for table in (item.logits, *item.tables)}
    drawn = [table for item in plans for table in item.tables if table.measure is not None and table.measure.pictures]
    tables |= {plan.picture_path(table, context) for table in drawn}
    tables |= {embedding_folder(item, context) for item in plans if context.slices}
    return tables | {plan.preflight_path(item.spec, item.digest, context) for item in plans}
