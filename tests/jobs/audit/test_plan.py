"""Cache keys: everything the numbers depend on, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.audit.plan import Context, plan_model
from services.measures.autoattack import AutoAttackSurvival
from services.measures.great import Great
from services.measures.measure import Measure
from services.measures.pgd import Pgd
from services.records import ModelSpec, SampleSpec

SPEC = ModelSpec("m", "factory:a:b")
CONTEXT = Context(SampleSpec("npz:x"), "samples", 100, "cache", 50, 10, 0)


def key(measure: Measure, context: Context = CONTEXT, digest: str = "weights") -> str:
    return plan_model(SPEC, digest, (measure,), context).tables[0].key


@pytest.mark.parametrize(
    ("measure", "seed", "sizes"),
    [(Great(), False, False), (Pgd(), True, False), (AutoAttackSurvival(), True, True)],
)
def test_what_moves_a_key(measure: Measure, seed: bool, sizes: bool) -> None:
    first = key(measure)
    assert (key(measure, replace(CONTEXT, seed=1)) != first) is seed
    assert (key(measure, replace(CONTEXT, batch=20)) != first) is sizes
    assert (key(measure, replace(CONTEXT, shard=25)) != first) is sizes
    assert key(measure, digest="others") != first
    assert key(measure, replace(CONTEXT, samples_digest="others")) != first
    assert key(measure, replace(CONTEXT, cache="elsewhere", samples=SampleSpec("npz:moved"))) == first


def test_parameters_and_version_move_a_key() -> None:
    class Revised(Great):
        version = 2

    assert len({key(Great()), key(Great(temperature=2.0)), key(Revised())}) == 3
