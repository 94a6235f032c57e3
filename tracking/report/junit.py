"""The verdict as JUnit XML, which every CI system reads.

A test suite is a model, a test case a gate. ``fail`` becomes a failure of type ``fail``; ``undecided`` a failure of
type ``undecided``, since a gate that cannot be decided must not let a model through; ``error`` becomes an error. A
model in error without gates gets one test case, and so has an audit that did not finish: the file never reads as
success without being one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree as ET

from services.records import AuditResult, Estimate, GateResult, ModelResult, Outcome
from services.storage import files

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

RAN = "the audit ran"
"""The test case of what stopped an audit, or kept a model out of it."""


def write_junit(result: AuditResult, path: str) -> None:
    """Write the XML file to `path`, whole or not at all.

    Raises:
        StorageError: it cannot be written.
    """
    root = ET.Element("testsuites", name=_legal(result.fleet), id=_legal(result.audit_id))
    for model in result.models:
        root.append(_suite(model, result))
    for count in ("tests", "failures", "errors"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    _write(root, path)


def write_unfinished(path: str, problems: Iterable[object] = ()) -> None:
    """Write the XML file of an audit without a verdict: one error, with the problems or that it did not finish.

    Raises:
        StorageError: it cannot be written.
    """
    messages = [_legal(str(problem)) for problem in problems] or ["the audit did not finish"]
    counts = {"tests": "1", "failures": "0", "errors": "1"}
    root = ET.Element("testsuites", {"name": "classwise", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": "classwise", **counts})
    case = ET.SubElement(suite, "testcase", name=RAN, classname="classwise", time="0")
    ET.SubElement(case, "error", type=Outcome.ERROR.value, message=messages[0]).text = "\n".join(messages)
    _write(root, path)


def _write(root: ET.Element, path: str) -> None:
    ET.indent(root)
    files.write_bytes(path, ET.tostring(root, encoding="utf-8", xml_declaration=True))


def _suite(model: ModelResult, result: AuditResult) -> ET.Element:
    gates = list(model.gates)
    if not gates or (model.outcome is Outcome.ERROR and all(gate.outcome is not Outcome.ERROR for gate in gates)):
        reason = "; ".join(model.reasons)
        text = RAN if model.outcome is Outcome.ERROR else "verdict"
        gates.append(GateResult(text, model.outcome, Estimate(None), reason))
    suite = ET.Element("testsuite", name=_legal(model.spec.name), timestamp=_legal(result.started[:19]))
    if model.attacks:
        known = ET.SubElement(suite, "properties")
        for attack in model.attacks:
            ET.SubElement(known, "property", name=_legal(f"adequacy {attack.name}"), value=attack.adequacy)
    suite.extend(_case(model, gate) for gate in gates)
    suite.set("tests", str(len(gates)))
    suite.set("failures", str(sum(gate.outcome in {Outcome.FAIL, Outcome.UNDECIDED} for gate in gates)))
    suite.set("errors", str(sum(gate.outcome is Outcome.ERROR for gate in gates)))
    suite.set("time", f"{model.seconds:.3f}")
    return suite


def _case(model: ModelResult, gate: GateResult) -> ET.Element:
    case = ET.Element("testcase", name=_legal(gate.text), classname=_legal(model.spec.name), time="0")
    if gate.outcome is not Outcome.PASS:
        tag = "error" if gate.outcome is Outcome.ERROR else "failure"
        fault = ET.SubElement(case, tag, type=gate.outcome.value, message=_legal(gate.reason))
        fault.text = _legal("\n".join([gate.reason, *model.reasons]))
    elif gate.overruled:
        ET.SubElement(case, "system-out").text = _legal(gate.reason)
    return case


def _legal(text: str) -> str:
    """XML 1.0 has no control characters."""
    return _ILLEGAL.sub("\ufffd", text)
