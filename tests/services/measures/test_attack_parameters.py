"""What a fleet file may say of the attack measures, and how it is read."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from services.measures.apgd import Apgd
from services.measures.autoattack import AutoAttackSurvival
from services.measures.catalogue import MEASURES, measure_from
from services.measures.cw import Cw
from services.measures.measure import Measure
from services.measures.minimal import Minimal
from services.measures.pgd import Pgd
from services.measures.square import Square
from services.records import Evidence, ThreatModel

WITHIN: list[type[Any]] = [Pgd, Cw, Apgd, Square, AutoAttackSurvival]


@pytest.mark.parametrize("measure", WITHIN)
def test_radii_are_numbers_fractions_one_or_many(measure: type[Any]) -> None:
    assert measure(epsilons="8/255").epsilons == (8 / 255,)
    assert measure(epsilons=0.1).epsilons == (0.1,)
    assert measure(epsilons=["8 / 255", 1 / 255, "0.3"]).epsilons == (1 / 255, 8 / 255, 0.3)


@pytest.mark.parametrize("measure", WITHIN)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (8, "meant 8/255?"),
        ([0.1, "255/8"], "in [0, 1] pixel units"),
        (0, "greater than 0"),
        (-0.1, "greater than 0"),
        ("eight", "a fraction like '8/255', found 'eight'"),
        ("8/0", "a fraction like '8/255'"),
        (float("nan"), "finite number"),
        ([], "at least 1 item"),
        ([0.1, 0.100001], "differ in five decimals"),
    ],
)
def test_radii_that_cannot_be_meant(measure: type[Any], value: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        measure(epsilons=value)


def test_an_l2_radius_may_exceed_one() -> None:
    assert Pgd(epsilons=3.0, norm="L2").epsilons == (3.0,)


@pytest.mark.parametrize(
    ("measure", "keys", "title"),
    [
        (Pgd(), ["pgd20/linf-0.03137"], "PGD-20 accuracy (Linf 8/255)"),
        (Pgd(steps=10, epsilons=(0.5,), norm="L2"), ["pgd10/l2-0.50000"], "PGD-10 accuracy (L2 0.5)"),
        (Pgd(restarts=5, loss="margin"), ["pgd20-marginx5/linf-0.03137"], "PGD-20-marginx5 accuracy (Linf 8/255)"),
        (Cw(epsilons=("1/255", "2/255")), ["cw20/linf-0.00392", "cw20/linf-0.00784"], "CW-20 accuracy (Linf 1/255)"),
        (Apgd(), ["apgd30/linf-0.03137"], "APGD-30 accuracy (Linf 8/255)"),
        (
            Apgd(losses=("dlr-t",), targets=3, restarts=2),
            ["apgd30-dlrt-t3x2/linf-0.03137"],
            "APGD-30-dlrt-t3x2 accuracy (Linf 8/255)",
        ),
        (Apgd(losses=("ce",), targets=3), ["apgd30-ce/linf-0.03137"], "APGD-30-ce accuracy (Linf 8/255)"),
        (Square(queries=100), ["square100/linf-0.03137"], "Square-100 accuracy (Linf 8/255)"),
        (AutoAttackSurvival(), ["autoattack/linf-0.03137"], "AutoAttack accuracy (Linf 8/255)"),
        (Minimal(), ["minimal/l2"], "smallest adversarial perturbation found (L2)"),
    ],
)
def test_keys_and_titles(measure: Measure, keys: list[str], title: str) -> None:
    assert [series.key for series in measure.series()] == keys
    assert measure.series()[0].title == title
    assert all(re.fullmatch(r"[a-z0-9._/-]+", key) for key in keys)
    assert all(series.binary == (series.bound == 1.0) for series in measure.series())


@pytest.mark.parametrize("name", ["pgd", "cw", "apgd", "square", "autoattack", "minimal"])
def test_registered_and_rebuilt_from_canonical_json(name: str) -> None:
    measure = MEASURES.get(name)()
    assert measure.name == name and measure.needs == "model"
    assert measure_from(measure.canonical()) == measure
    assert measure.gradients == (name != "square")


def test_default_steps() -> None:
    (linf,) = Pgd().curve()
    assert linf.step == pytest.approx(2 / 255)
    (l2,) = Pgd(epsilons=0.5, norm="L2", steps=10).curve()
    assert l2.step == pytest.approx(0.125)
    assert [each.step for each in Cw(epsilons=(0.1, 0.2), step_size="1/255").curve()] == [1 / 255, 1 / 255]


def test_parameters_are_read_without_torch() -> None:
    names = ["pgd", "cw", "apgd", "square", "autoattack", "minimal"]
    code = f"import sys; from services.measures.catalogue import MEASURES as M; [M.get(n)() for n in {names}]; "
    subprocess.run([sys.executable, "-c", code + "sys.exit('torch' in sys.modules)"], check=True, timeout=60)


def test_fab_stands_first_or_last() -> None:
    assert Minimal(attacks=("fab",)).attacks == ("fab",)
    assert Minimal(attacks=("fab", "cw")).attacks == ("fab", "cw")
    with pytest.raises(ValidationError, match="expected fab first, to run on all samples, or last"):
        Minimal(attacks=("fmn", "fab", "cw"))


def test_what_apgd_refuses_and_declares() -> None:
    with pytest.raises(ValidationError, match="each loss once"):
        Apgd(losses=("ce", "ce"))
    with pytest.raises(ValidationError, match="losses"):
        Apgd(losses=())
    for name in ("steps", "restarts", "targets"):
        with pytest.raises(ValidationError, match=f"{name}\n.*greater than or equal to 1"):
            Apgd.model_validate({name: 0})
    (series,) = Apgd(epsilons=0.5, norm="L2").series()
    assert (series.evidence, series.family, series.threat) == (Evidence.ATTACK, "apgd", ThreatModel("L2", 0.5))
    assert Apgd().column("broken_by").names == ("unbroken", "misclassified", "ce", "dlr-t", "dlr")
