"""A worker: shards that do not depend on the batch, memory that runs out, errors that name the shard."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.errors import ResourceError, SourceError, WorkerError
from services.loading.models.source import fingerprint
from services.measures.clean import Clean
from services.measures.great import Great
from services.numerics.great import great_scores
from services.numerics.temperature import TemperatureNodes
from services.records import ModelSpec, SampleSpec, ShardTask
from services.running.workers import Worker
from services.storage.shards import read_shard
from tests import networks

MODEL = ModelSpec("cnn", "factory:services.training.architectures:small_cnn?width=8")
SAMPLES = SampleSpec("sklearn:digits?split=test", per_class=20)
FACTORIES = ("services.training.*", "tests.networks")


def logits_task(tmp_path: Path, **changes: Any) -> ShardTask:
    task = ShardTask("logits", MODEL, SAMPLES, 0, 200, 0, 64, target=str(tmp_path / "logits.parquet"))
    return replace(task, **changes)


@pytest.fixture
def worker() -> Worker:
    return Worker("cpu", 1, FACTORIES)


def test_logits_do_not_depend_on_the_batch(worker: Worker, tmp_path: Path) -> None:
    tables = []
    for batch in (7, 64, 200):
        receipt = worker.run(logits_task(tmp_path, batch=batch))
        assert (receipt.rows, receipt.forwards) == (200, 200)
        tables.append(read_shard(str(tmp_path / "logits.parquet")))
    for table in tables[1:]:
        assert np.array_equal(table["id"], tables[0]["id"])
        np.testing.assert_allclose(table["logits"], tables[0]["logits"], rtol=0, atol=1e-5)


def test_a_shard_done_twice_is_the_same_file(worker: Worker, tmp_path: Path) -> None:
    worker.run(logits_task(tmp_path))
    first = (tmp_path / "logits.parquet").read_bytes()
    Worker("cpu", 1, FACTORIES).run(logits_task(tmp_path))
    assert (tmp_path / "logits.parquet").read_bytes() == first


def test_another_model_than_the_audit_began_with_is_refused_and_writes_nothing(worker: Worker, tmp_path: Path) -> None:
    worker.run(logits_task(tmp_path, digest=fingerprint(MODEL)))
    (tmp_path / "logits.parquet").unlink()
    with pytest.raises(SourceError, match="the weights and code the audit began with"):
        worker.run(logits_task(tmp_path, digest="0" * 32))
    assert not (tmp_path / "logits.parquet").exists()


def test_a_derived_shard_holds_the_scores_of_its_logits(worker: Worker, tmp_path: Path) -> None:
    worker.run(logits_task(tmp_path))
    measure = Great(activation="softmax", temperature=2.0)
    source, target = str(tmp_path / "logits.parquet"), str(tmp_path / "great.parquet")
    worker.run(logits_task(tmp_path, kind="derive", measure=measure.canonical(), source=source, target=target))
    shard, table = read_shard(source), read_shard(target)
    wanted = great_scores(shard["logits"], shard["label"], temperature=2.0, activation="softmax")
    assert np.array_equal(table["great-softmax"], wanted.scores)
    assert np.array_equal(table["id"], shard["id"])


def test_calibration_returns_sums_and_no_logits(worker: Worker, tmp_path: Path) -> None:
    worker.run(logits_task(tmp_path))
    nodes = TemperatureNodes.covering(0.5, 2.0, activation="sigmoid")
    shape = {"nodes": [nodes.low, nodes.octaves, nodes.order], "activation": "sigmoid", "k": 10, "groups": 4}
    payload = json.dumps(shape)
    task = logits_task(tmp_path, kind="calibrate", source=str(tmp_path / "logits.parquet"), payload=payload)
    receipt = worker.run(task)
    assert receipt.forwards == 0
    assert receipt.arrays["sums"].shape == (len(nodes.temperatures), 4 * 10)
    assert receipt.arrays["counts"].reshape(4, 10).sum(axis=0).tolist() == [20] * 10


def limited(most: int) -> ModelSpec:
    """A network that runs out of memory beyond `most` images."""
    return ModelSpec("cnn", f"factory:tests.networks:limited?most={most}")


def test_when_memory_runs_out_the_batch_is_halved_and_the_numbers_stay(worker: Worker, tmp_path: Path) -> None:
    worker.run(logits_task(tmp_path, model=limited(8), batch=8))
    whole = read_shard(str(tmp_path / "logits.parquet"))["logits"]
    networks.PASSED.clear()
    worker.run(logits_task(tmp_path, model=limited(9), batch=128))
    assert max(networks.PASSED) == 8
    np.testing.assert_array_equal(read_shard(str(tmp_path / "logits.parquet"))["logits"], whole)


def hungry_onnx(path: Path) -> ModelSpec:
    """A graph whose memory grows as 8 ** n with the batch n: 64 MiB for 8 images, beyond any machine for 16."""
    import onnx
    from onnx import TensorProto, helper

    def constant(name: str, kind: int, values: list[float]) -> Any:
        return helper.make_tensor(name, kind, [len(values)], values)

    nodes = [
        ("Flatten", ["x"], ["flat"]),
        ("Slice", ["flat", "start", "stop", "axis"], ["logits"]),
        ("Shape", ["x"], ["shape"]),
        ("Gather", ["shape", "first"], ["n"]),
        ("Cast", ["n"], ["n_float"], {"to": TensorProto.FLOAT}),
        ("Mul", ["n_float", "three"], ["bits_asked"]),
        ("Min", ["bits_asked", "most"], ["bits"]),
        ("Pow", ["two", "bits"], ["size_float"]),
        ("Cast", ["size_float"], ["size"], {"to": TensorProto.INT64}),
        ("ConstantOfShape", ["size"], ["waste"]),
        ("ReduceMax", ["waste"], ["nothing"], {"keepdims": 0}),
        ("Add", ["logits", "nothing"], ["y"]),
    ]
    whole, real = TensorProto.INT64, TensorProto.FLOAT
    values = {"start": (whole, [0]), "stop": (whole, [10]), "axis": (whole, [1]), "first": (whole, [0])}
    values |= {"three": (real, [3.0]), "most": (real, [48.0]), "two": (real, [2.0])}
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, made, **dict(*more)) for kind, inputs, made, *more in nodes],
        "hungry",
        [helper.make_tensor_value_info("x", real, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info("y", real, ["n", 10])],
        [constant(name, kind, numbers) for name, (kind, numbers) in values.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return ModelSpec("hungry", f"onnx:{path}")


def test_when_onnx_runtime_runs_out_of_memory_the_batch_is_halved_too(worker: Worker, tmp_path: Path) -> None:
    receipt = worker.run(logits_task(tmp_path, model=hungry_onnx(tmp_path / "m.onnx"), batch=64))
    assert receipt.rows == 200
    assert receipt.forwards > 200, "the images of passes that failed count as well"
    assert read_shard(str(tmp_path / "logits.parquet"))["logits"].shape == (200, 10)


def test_when_one_image_is_too_much_the_remedy_is_told(worker: Worker, tmp_path: Path) -> None:
    with pytest.raises(
        ResourceError, match="memory for a batch of one image, found out of memory; use a larger device"
    ):
        worker.run(logits_task(tmp_path, model=limited(0)))
    assert not (tmp_path / "logits.parquet").exists()


def test_an_unexpected_error_names_model_and_rows(worker: Worker, tmp_path: Path) -> None:
    model = ModelSpec("cnn", "factory:tests.networks:broken")
    with pytest.raises(WorkerError, match=r"cnn, logits, rows 0 to 200: .* ValueError: no such layer"):
        worker.run(logits_task(tmp_path, model=model))


def test_a_worker_that_is_told_to_go_goes_and_blames_no_model(worker: Worker, tmp_path: Path) -> None:
    """A node that went, by SIGTERM, cost the model its audit, where one that was killed cost nothing."""
    model = ModelSpec("cnn", "factory:tests.networks:ended")
    with pytest.raises(SystemExit):
        worker.run(logits_task(tmp_path, model=model))


def test_a_table_of_logits_cannot_serve_a_measure_of_the_network(worker: Worker, tmp_path: Path) -> None:
    np.savez(tmp_path / "l.npz", logits=np.zeros((1797, 10), dtype=np.float32))
    spec = ModelSpec("box", f"logits:{tmp_path / 'l.npz'}")
    task = logits_task(tmp_path, kind="measure", model=spec, measure=Clean().canonical())
    with pytest.raises(WorkerError, match="box, clean: expected a model that gives the network itself"):
        worker.run(task)
