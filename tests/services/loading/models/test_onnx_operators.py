"""An ONNX graph runs the operators of a positive list, wherever in it they stand."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.errors import SourceError
from services.loading.confined import confined_to
from services.loading.models.onnx_files import BUILT_IN, OPERATORS, named_in
from services.loading.models.source import load_model
from services.records import ModelSpec

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
helper, Proto = onnx.helper, onnx.ModelProto

LISTED = {(name, domain) for name in OPERATORS for domain in ("", "ai.onnx")}


def known() -> set[tuple[str, str]]:
    """Names and domains of all operators that ONNX and ONNX Runtime know."""
    schemas = runtime.capi.onnxruntime_pybind11_state.get_all_operator_schema()
    return {(each.name, each.domain) for each in (*schemas, *onnx.defs.get_all_schemas_with_history())}


def node(name: str, domain: str = "", inputs: tuple[str, ...] = ("x",), **attributes: Any) -> Any:
    return helper.make_node(name, list(inputs), ["y"], domain=domain, **attributes)


def graph(*nodes: Any) -> Any:
    return helper.make_graph(list(nodes), "g", [], [helper.make_empty_tensor_value_info("y")])


def model(*nodes: Any, functions: tuple[Any, ...] = ()) -> Any:
    """Images (n, 1, 8, 8) through the nodes to y."""
    x, y = (helper.make_tensor_value_info(name, 1, ["n", 1, 8, 8]) for name in ("x", "y"))
    opsets = [helper.make_opsetid(*each) for each in (("", 17), ("com.microsoft", 1), ("ai.onnx.ml", 3), ("local", 1))]
    whole = helper.make_graph(list(nodes), "g", [x], [y])
    return helper.make_model(whole, opset_imports=opsets, functions=list(functions), ir_version=8)


def function(name: str, *nodes: Any, domain: str = "local") -> Any:
    opsets = [helper.make_opsetid(*each) for each in (("", 17), ("com.microsoft", 1), ("local", 1))]
    return helper.make_function(domain, name, ["x"], ["y"], list(nodes), opsets)


def test_the_list_is_of_operators_that_there_are_and_other_domains_are_known_as_built_in() -> None:
    assert {(name, domain) for name, domain in known() if name in OPERATORS and domain == ""} <= LISTED
    assert {name for name, domain in known() if domain == ""} >= OPERATORS
    assert {domain.partition(".")[0] for _, domain in known()} <= BUILT_IN
    assert not OPERATORS & {"ImageDecoder", "RegexFullMatch", "StringConcat", "SequenceMap", "Optional"}


def places(inner: Any) -> dict[str, Callable[[], Any]]:
    """Where in a graph a node may stand."""
    deep = node("If", then_branch=graph(node("Loop", body=graph(inner))), else_branch=graph(node("Relu")))
    trained = model(node("Relu"))

    def training() -> Any:
        trained.training_info.add().algorithm.CopyFrom(graph(inner))
        return trained

    def default() -> Any:
        made = function("F", node("Relu"))
        made.attribute_proto.add(name="a", type=onnx.AttributeProto.GRAPH).g.CopyFrom(graph(inner))
        return model(node("F", "local"), functions=(made,))

    return {
        "the graph": lambda: model(inner),
        "a branch in a branch": lambda: model(deep),
        "one of several graphs": lambda: model(node("Scan", bodies=[graph(node("Relu")), graph(inner)])),
        "a function": lambda: model(node("F", "local"), functions=(function("F", inner),)),
        "a function that nothing calls": lambda: model(node("Relu"), functions=(function("F", inner),)),
        "the default of a function": default,
        "a graph of training": training,
    }


def test_random_graphs_are_refused_exactly_for_their_operators_off_the_list() -> None:
    """Every operator of ONNX, of ONNX Runtime and of domains that nobody knows, at every place of a graph."""
    draw = random.Random(15)
    operators = [*sorted(known()), ("Relu", "mine"), ("Relu", "COM.MICROSOFT"), ("relu", ""), ("", ""), ("Relu ", "")]
    draw.shuffle(operators)
    assert 200 < len(set(operators) - LISTED) < len(operators)
    for number, (name, domain) in enumerate(operators):
        place, make = [*places(node(name, domain)).items()][number % 7]
        expected = () if (name, domain) in LISTED else (f"{domain}.{name}" if domain else name,)
        assert named_in(make().SerializeToString()).operators == expected, (place, name, domain)


@pytest.mark.parametrize("place", places(node("Relu")))
def test_a_graph_with_another_operator_is_not_opened(place: str, tmp_path: Path) -> None:
    onnx.save(places(node("QuickGelu", "com.microsoft"))[place](), tmp_path / "m.onnx")
    for folders in (None, [str(tmp_path)]):
        with confined_to(folders), pytest.raises(SourceError) as refused:
            load_model(ModelSpec("m", f"onnx:{tmp_path}/m.onnx"))
        (problem,) = refused.value.problems
        assert (problem.expected, problem.found) == (
            "an ONNX graph of granted operators (docs/security.md)",
            "com.microsoft.QuickGelu",
        )
        assert problem.remedy.startswith("export it again from ONNX's own operators, or set allow_unpickling: true")


def test_it_is_opened_for_who_trusts_its_author(tmp_path: Path) -> None:
    onnx.save(model(node("QuickGelu", "com.microsoft")), tmp_path / "m.onnx")
    assert load_model(ModelSpec("m", f"onnx:{tmp_path}/m.onnx", allow_unpickling=True)).network is not None


def test_functions_of_a_graph_are_granted_with_what_they_call(tmp_path: Path) -> None:
    calls = function("G", node("F", "local")), function("F", node("Relu"))
    onnx.save(model(node("G", "local"), functions=calls), tmp_path / "m.onnx")
    assert load_model(ModelSpec("m", f"onnx:{tmp_path}/m.onnx")).network is not None


@pytest.mark.parametrize("domain", ["com.microsoft", "ai.onnx.ml", "org.pytorch.aten", "com.microsoft.nchwc"])
def test_a_function_by_the_name_of_a_built_in_operator_is_none(domain: str) -> None:
    """Which of the two would run is the library's choice."""
    data = model(node("QuickGelu", domain), functions=(function("QuickGelu", node("Relu"), domain=domain),))
    assert named_in(data.SerializeToString()).operators == (f"{domain}.QuickGelu",)


def test_an_operator_that_is_named_twice_is_judged_by_both() -> None:
    """The last one counts for one reader, the first for another."""
    named = node("Relu").SerializeToString()
    for more, refused in ((b"\x22\x07Unknown", "Unknown"), (b"\x3a\x04mine", "mine.Relu")):
        data = onnx.GraphProto().SerializeToString() + b"\x0a" + bytes([len(named + more)]) + named + more
        whole = b"\x3a" + bytes([len(data)]) + data
        assert refused in named_in(whole).operators


def test_a_graph_in_the_runtimes_own_format_is_none(tmp_path: Path) -> None:
    """In which nothing could be judged."""
    options = runtime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "m.onnx")
    options.add_session_config_entry("session.save_model_format", "ORT")
    runtime.InferenceSession(model(node("Relu")).SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert (tmp_path / "m.onnx").read_bytes()[4:8] == b"ORTM"
    with pytest.raises(SourceError, match="an ONNX graph at"):
        load_model(ModelSpec("m", f"onnx:{tmp_path}/m.onnx"))
