from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

from rich.console import Console

from services.records import AuditResult, Estimate, GateResult, Outcome
from tracking.report.junit import write_junit
from tracking.report.terminal import verdict_table, verdict_text


def printed(content: object, width: int = 100) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(content)
    return file.getvalue()


def test_the_table_fits_eighty_columns_whole(gf_audit: AuditResult) -> None:
    lines = printed(verdict_text(gf_audit), 80).splitlines()
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if "Ding2020MMA" in line)
    assert row.split()[:9] == ["Ding2020MMA", "fail", "great", "0.086", "cat", "0.039", "0.034", "0.127", "0.218"]
    heads = next(line for line in lines if "verdict" in line)
    assert heads.split() == ["model", "verdict", "measure", "score", "worst", "mean", "low", "RDI", "NRGC"]
    assert "14 of 17 models fail" in " ".join(lines) and "Spearman +0.90" in " ".join(lines)


def test_hostile_names_are_printed_as_text(hostile_audit: AuditResult) -> None:
    text = printed(verdict_table(hostile_audit))
    assert "<img src" in text and "\u202e" not in text and "\x1b" not in text


def test_many_models_are_cut_with_the_faults_first(make_audit: Callable[..., AuditResult]) -> None:
    text = printed(verdict_table(make_audit(150, 3)))
    assert "100 of 150 models" in text


def test_junit_says_fail_undecided_and_error_apart(small_audit: AuditResult, tmp_path: Path) -> None:
    kinds = (Outcome.PASS, Outcome.FAIL, Outcome.UNDECIDED, Outcome.ERROR)
    gates = tuple(GateResult(f"gate <{kind}>", kind, Estimate(0.1), f"because\x00 {kind}") for kind in kinds)
    judged = replace(small_audit.models[0], gates=gates, outcome=Outcome.ERROR)
    crashed = replace(small_audit.models[1], gates=(), series=(), outcome=Outcome.ERROR, reasons=("no weights",))
    path = tmp_path / "junit.xml"
    write_junit(replace(small_audit, models=(judged, crashed)), str(path))
    root = ET.parse(path).getroot()
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("5", "2", "2")
    cases = root[0].findall("testcase")
    assert [[(child.tag, child.get("type")) for child in case] for case in cases] == [
        [],
        [("failure", "fail")],
        [("failure", "undecided")],
        [("error", "error")],
    ]
    assert root[1][0][0].get("message") == "no weights"


def test_long_names_give_way_to_the_numbers(gf_audit: AuditResult) -> None:
    first = gf_audit.models[0]
    series = tuple(
        replace(
            each,
            series=replace(each.series, key="probacc-0.1/uniform-0.1/certified"),
            worst=("automobile", "cat", "dog"),
        )
        for each in first.series
    )
    named = replace(first, spec=replace(first.spec, name="trades-resnet18-cifar10-s0"), series=series)
    named = replace(named, outcome=Outcome.UNDECIDED)
    lines = printed(verdict_text(replace(gf_audit, models=(named,))), 80).splitlines()
    heads = next(line for line in lines if "verdict" in line)
    assert heads.split()[-6:] == ["score", "worst", "mean", "low", "RDI", "NRGC"]
    row = lines[lines.index(heads) + 2]
    assert len(row) <= 80 and row.split()[-1] == f"{series[0].metric('nrgc').value:.3f}"
    wide = printed(verdict_text(replace(gf_audit, models=(named,)), 140), 140)
    assert "automobile and 2 more" in wide and named.spec.name in wide and series[0].series.key in wide
    assert max(map(len, wide.splitlines())) <= 140


def test_columns_are_left_out_before_a_name_is_cut(gf_audit: AuditResult) -> None:
    model = gf_audit.models[0]
    result = model.series[0]
    names = tuple(group.name for group in result.groups)
    result = replace(result, series=replace(result.series, key="pgd10/linf-0.01569"), worst=names[:7])
    named = replace(model, spec=replace(model.spec, name="wide_madry8"), series=(result,))
    audit = replace(gf_audit, models=(named,))
    for width, heads, said in ((80, ["mean", "low"], False), (140, ["RDI", "NRGC"], True)):
        text = printed(verdict_text(audit, width), width)
        row = next(line for line in text.splitlines() if "wide_madry8 " in line)
        assert "pgd10/linf-0.01569" in row and " and 6 more" in row and len(row) <= width
        assert next(line for line in text.splitlines() if "verdict" in line).split()[-2:] == heads
        assert ("NRGC (Gini)" in text) is said
    everyone = replace(audit, models=(replace(named, series=(replace(result, worst=names),)),))
    assert f" all {len(names)} " in printed(verdict_table(everyone))
