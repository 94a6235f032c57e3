"""Exported graphs that would do more than compute: each is refused before anything in it runs; real ones still load."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from services.errors import SourceError
from services.loading import packages
from services.loading.models.exported import code_in, members
from services.loading.models.guarded import kind_of
from services.loading.models.operators import OPERATORS, WORDS, is_tensor_operator, takes_tensors
from services.loading.models.source import load_model
from services.records import ModelSpec
from services.training.architectures.build import build

Change = Callable[[dict[str, Any]], None]
"""Alters the graph, as JSON."""


def exported(model: nn.Module, *shape: int) -> dict[str, bytes]:
    """The members of an exported network, for any batch."""
    page = io.BytesIO()
    shapes = ({0: torch.export.Dim.DYNAMIC},)
    torch.export.save(torch.export.export(model.eval(), (torch.rand(2, *shape),), dynamic_shapes=shapes), page)
    with zipfile.ZipFile(page) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def plain() -> dict[str, bytes]:
    torch.manual_seed(0)
    return exported(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU()), 1, 2, 2)


def written(found: dict[str, bytes], path: Path, change: Change | None = None, **more: bytes) -> ModelSpec:
    """The archive as a file, with its graph altered and members added."""
    altered = {**found, **{f"archive/{name}": data for name, data in more.items()}}
    if change is not None:
        graph = json.loads(altered["archive/models/model.json"])
        change(graph)
        altered["archive/models/model.json"] = json.dumps(graph).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in altered.items():
            archive.writestr(name, data)
    return ModelSpec("m", f"export:{path}")


def graph_of(program: dict[str, Any]) -> dict[str, Any]:
    inner: dict[str, Any] = program["graph_module"]["graph"]
    return inner


def node(target: str, result: str, **inputs: dict[str, Any]) -> dict[str, Any]:
    arguments = [{"name": name, "arg": value, "kind": 1} for name, value in inputs.items()]
    return {"target": target, "inputs": arguments, "outputs": [{"as_tensor": {"name": result}}], "metadata": {}}


def writes_file(victim: Path) -> Change:
    """A graph that maps a file into memory and copies numbers of its own over it."""

    def change(program: dict[str, Any]) -> None:
        graph = graph_of(program)
        meta = json.loads(json.dumps(graph["tensor_values"]["p_1_bias"]))
        graph["tensor_values"] |= {"mapped": meta, "over": meta}
        size = victim.stat().st_size // 4
        mapped = node(
            "torch.ops.aten.from_file.default",
            "mapped",
            filename={"as_string": str(victim)},
            shared={"as_bool": True},
            size={"as_int": size},
        )
        own, there = {"as_tensor": {"name": "p_1_bias"}}, {"as_tensor": {"name": "mapped"}}
        graph["nodes"] += [mapped, node("torch.ops.aten.copy_.default", "over", self=there, src=own)]

    return change


def test_a_graph_that_writes_a_file_is_refused(plain: dict[str, bytes], tmp_path: Path) -> None:
    victim = tmp_path / "fleet.json"
    victim.write_bytes(b"as it was...")
    spec = written(plain, tmp_path / "m.pt2", writes_file(victim))
    with pytest.raises(SourceError, match=r"aten\.from_file"):
        load_model(spec).network(torch.rand(2, 1, 2, 2))
    assert victim.read_bytes() == b"as it was..."


def attacks(trace: Path) -> Iterator[tuple[str, Change]]:
    """Alterations that run code in one way each; `trace` would appear."""
    code = f"__import__('pathlib').Path({str(trace)!r}).touch()"

    def names(program: dict[str, Any], old: str, new: str) -> None:
        text = json.dumps(program)
        program.clear()
        program.update(json.loads(text.replace(json.dumps(old), json.dumps(new))))

    def signature(program: dict[str, Any], **changes: Any) -> None:
        program["graph_module"]["module_call_graph"][0]["signature"].update(changes)

    def tree(program: dict[str, Any], kind: str, context: Any) -> None:
        leaf = {"type": None, "context": None, "children_spec": []}
        signature(program, out_spec=json.dumps([1, {"type": kind, "context": context, "children_spec": [leaf]}]))

    def escaped(program: dict[str, Any]) -> None:
        tree(program, "builtins.dict", '[{"__en\\u0075m__": true, "fqn": "antigravity:fly", "name": "x"}]')

    def factory(program: dict[str, Any]) -> None:
        module = {"default_factory_module": "antigravity", "default_factory_name": "fly", "dict_context": ["a"]}
        tree(program, "collections.defaultdict", module)

    def called(target: str) -> Change:
        def change(program: dict[str, Any]) -> None:
            graph_of(program)["nodes"][-1]["target"] = target

        return change

    def hidden(program: dict[str, Any]) -> None:
        inner = json.loads(json.dumps(graph_of(program)))
        inner["nodes"][0]["target"] = "torch.ops.aten.from_file.default"
        branch = {"as_graph": {"name": "true_graph_0", "graph": inner}}
        graph_of(program)["nodes"].append(node("torch.ops.higher_order.cond", "c", **{"": branch}))

    yield "an argument's default", lambda program: signature(program, forward_arg_names=[f"input={code}"])
    yield "a node's name", lambda program: names(program, "relu", f"relu = {code}; relu")
    yield "an input's name", lambda program: names(program, "input", f"input={code}")
    yield "a parameter's name", lambda program: names(program, "1.bias", f'1.b" + str({code}) + "')
    yield "an attribute's name", lambda program: names(program, "flatten", "torch.nn.functional.relu")
    yield "an enumeration, escaped", escaped
    yield "a factory of a dictionary", factory
    yield "a subgraph", hidden
    for target in (
        "torch.ops.aten.from_file.out",
        "torch.ops.aten.set_.source_Tensor",
        "torch.ops.aten.resize_.default",
    ):
        yield target, called(target)
    for target in ("torch.ops.load_library", "torch.ops.aten.save.default", "torch.ops.prims.xla_op.default"):
        yield target, called(target)
    for target in ("torch.ops.higher_order.auto_functionalized", "#custom:op", "torch.ops.aten.add.str", "torch.load"):
        yield target, called(target)


NAMES = [name for name, _ in attacks(Path("/nowhere"))]


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_that_runs_code_is_refused(name: str, plain: dict[str, bytes], tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    spec = written(plain, tmp_path / "m.pt2", dict(attacks(trace))[name])
    with pytest.raises(SourceError, match="an archive of tensors only"):
        load_model(spec).network(torch.rand(2, 1, 2, 2))
    assert not trace.exists()


def test_a_subgraph_is_judged_and_harmless_ones_load(tmp_path: Path) -> None:
    class Inner(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                mean = images.mean(dim=(1, 2, 3), keepdim=True) * 2
            return (images - mean).flatten(1)

    result = exported(Inner(), 1, 2, 2)
    assert "higher_order" in result["archive/models/model.json"].decode()
    images = torch.rand(3, 1, 2, 2)
    torch.testing.assert_close(load_model(written(result, tmp_path / "a.pt2")).network(images), Inner()(images))
    text = result["archive/models/model.json"].replace(b"aten.mul.Tensor", b"aten.set_.source_Tensor")
    with pytest.raises(SourceError, match=r"aten\.set_"):
        load_model(written({**result, "archive/models/model.json": text}, tmp_path / "b.pt2"))


@pytest.mark.parametrize(
    "member",
    [
        "data/aotinductor/model/weight_0.wrapper.so",
        "data/aotinductor/model/weight_0",
        "data/constants/custom_obj_0",
        "data/constants/opaque_obj_0",
        "models/other.json",
        "data/weights/../constants/opaque_obj_0",
    ],
)
def test_a_member_besides_graph_and_tensors_is_refused(member: str, plain: dict[str, bytes], tmp_path: Path) -> None:
    folder, name = f"archive/{member}".rsplit("/", 1)
    config = {"config": {"w": {"path_name": name, "use_pickle": False, "is_param": False, "tensor_meta": None}}}
    raw = {f"{folder}/x_config.json": json.dumps(config).encode(), f"{folder}/{name}": b"\x7fELF"}
    with pytest.raises(SourceError, match=name.replace(".", r"\.")):
        load_model(written({**plain, **raw}, tmp_path / "m.pt2"))


def overloads() -> list[Any]:
    """All overloads of `aten` that this torch has."""
    results = []
    for name in sorted({schema.name for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::")}):
        packet = getattr(torch.ops.aten, name.removeprefix("aten::"), None)
        results += [getattr(packet, each) for each in packet.overloads()] if packet is not None else []
    return results


def test_no_operator_on_the_list_takes_a_file_a_generator_or_a_result_to_write_into() -> None:
    admitted = [each for each in overloads() if is_tensor_operator(f"torch.ops.{each}")]
    assert {each._opname for each in admitted} == OPERATORS
    for each in admitted:
        for argument in each._schema.arguments:
            words = str(argument.type)
            assert "str" not in words or argument.name in WORDS, each
            assert not any(kind in words for kind in ("Generator", "Storage", "Stream", "Any", "Dict", "torch.classes"))
            assert not argument.is_out and "file" not in argument.name, each
            assert argument.name not in ("dtype", "layout", "memory_format") or kind_of(argument), each


@pytest.mark.parametrize(
    "name", ["to.prim_Device", "to.prim_dtype", "remainder.int", "remainder.default", "sort.int", "div.int", "log.int"]
)
def test_arithmetic_of_torchscript_is_off_the_list(name: str) -> None:
    """Its remainder by 0 ends the process, its `dtype` is a number that nothing checks. Exports use Python's own."""
    assert not is_tensor_operator(f"torch.ops.aten.{name}")
    assert is_tensor_operator("torch.ops.aten.remainder.Tensor") and is_tensor_operator("_operator.mod")


def test_random_graphs_are_refused_exactly_for_their_operators_off_the_list(plain: dict[str, bytes]) -> None:
    """Every operator of aten, drawn into graphs and into subgraphs at any depth."""
    draw, known = random.Random(15), [f"torch.ops.{each}" for each in overloads()]
    draw.shuffle(known)
    assert 1000 < sum(not is_tensor_operator(name) for name in known) < len(known)
    program = json.loads(plain["archive/models/model.json"])
    while known:
        chosen, known = known[:30], known[30:]
        graph = graph_of(altered := json.loads(json.dumps(program)))
        for name in chosen:
            if draw.random() < 0.2:
                inner = json.loads(json.dumps(graph_of(program)))
                branch = {"as_graph": {"name": "g", "graph": inner}}
                graph["nodes"].append(node("torch.ops.higher_order.cond", "c", **{"": branch}))
                graph = inner
            graph["nodes"].insert(draw.randrange(len(graph["nodes"])), node(name, "x", self={"as_int": 1}))
        refused = code_in({**plain, "archive/models/model.json": json.dumps(altered).encode()})
        assert sorted(refused) == sorted(name for name in chosen if not is_tensor_operator(name))


@pytest.mark.parametrize(
    "text", ["", "torch", "torch.ops.aten", "torch.ops.aten.add", "torch.ops.aten.add.nope", "x\n"]
)
def test_a_target_that_is_no_operator_is_off_the_list(text: str) -> None:
    assert not is_tensor_operator(text)


def test_a_schema_with_a_file_is_no_tensor_operators() -> None:
    assert not takes_tensors(torch.ops.aten.from_file.default._schema)
    assert takes_tensors(torch.ops.aten.add.Tensor._schema)


OWN = {
    "cifar_resnet": (3, 32, 32),
    "cnn4": (1, 28, 28),
    "simple_cnn": (1, 28, 28),
    "deit_t": (3, 224, 224),
    "mobile": (3, 32, 32),
    "resnet18": (3, 32, 32),
    "resnet2b": (3, 32, 32),
    "small_cnn": (1, 8, 8),
    "vgg19": (3, 32, 32),
}


pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # of torch's own export


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "deit_t" else name for name in OWN]
)
@pytest.mark.long
def test_our_own_architectures_load(name: str, tmp_path: Path, torchvision_operators: None) -> None:
    if name.startswith("deit"):
        packages.package("timm", "")
    network = build(name, seed=0).eval()
    images = torch.rand(3, *OWN[name])
    loaded = load_model(written(exported(network, *OWN[name]), tmp_path / "m.pt2"))
    with torch.no_grad():
        torch.testing.assert_close(loaded.network(images), network(images), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        "vit_tiny_patch16_224",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("mobilenetv3_small_050", "resnet10t", "convnext_atto")
        ),
    ],
)
@pytest.mark.long
def test_networks_of_timm_load(name: str, tmp_path: Path, torchvision_operators: None) -> None:
    side = 224 if "vit" in name else 32
    network = packages.package("timm", "").create_model(name, num_classes=3)
    loaded = load_model(written(exported(network, 3, side, side), tmp_path / "m.pt2"))
    assert loaded.network(torch.rand(3, 3, side, side)).shape == (3, 3)


@pytest.mark.slow
@pytest.mark.long
def test_a_network_of_torchvision_loads_decomposed_too(tmp_path: Path, torchvision_operators: None) -> None:
    network = packages.package("torchvision.models", "").get_model("resnet18", num_classes=3)
    program = torch.export.export(network.eval(), (torch.rand(2, 3, 32, 32),))
    for number, each in enumerate((program, program.run_decompositions())):
        path = tmp_path / f"{number}.pt2"
        torch.export.save(each, path)
        assert code_in(members(path)) == []
        assert load_model(ModelSpec("m", f"export:{path}")).network(torch.rand(3, 3, 32, 32)).shape == (3, 3)
