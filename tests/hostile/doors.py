"""Every place where classwise reads what others wrote, as one table: a valid file, and the function that opens it.

The fuzzers and the corpus of attacks go through all of them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import nn

from services.records import ModelSpec, SampleSpec

FLEET = """fleet: shop
samples: {uri: "npz:data/test.npz?scale=255", per_class: 10}
models:
  - {name: a, uri: "logits:a.npz", clean_accuracy: 0.9, input: {mean: [0.5], std: [0.25]}}
measures: [clean, {name: pgd, steps: 20, epsilons: ["8/255"]}]
gates: [{measure: clean, metric: wcr, at_least: 0.5}]
groups: [ink]
storage: /srv/runs
"""
SWEEP = """sweep: s
datasets: [{name: digits}]
architectures: [{name: small_cnn, width: 8}]
methods: [erm, {name: pgd, budget: {epsilon: "8/255", steps: 7}}]
seeds: [0, 1]
recipe: {epochs: 3, batch: 64}
storage: /srv/runs
"""
SETTINGS = """storage: /srv/runs
tokens: [{name: ci, env: CI_TOKEN}]
allow: {models: [factory], samples: [npz], paths: [/data], factories: [shop.*]}
limits: {per_minute: 10}
"""
PUBLISHED = {
    "schema_version": 1,
    "source": "a table",
    "license": "CC0",
    "unit": "percent",
    "rows": [{"dataset": "CIFAR-10", "method": "m", "metrics": {"clean": 90.0}}],
}


@dataclass(frozen=True)
class Door:
    """One parser.

    Attributes:
        file: the file's name in the folder that is opened.
        seed: the content of a valid one.
        open: reads the folder.
    """

    file: str
    seed: Callable[[], bytes]
    open: Callable[[Path], Any]


def _saved(write: Callable[[io.BytesIO], object]) -> bytes:
    page = io.BytesIO()
    write(page)
    return page.getvalue()


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).eval()


@cache
def weights_seed() -> bytes:
    return _saved(lambda page: torch.save({"state_dict": _network().state_dict()}, page))


@cache
def safetensors_seed() -> bytes:
    from safetensors.torch import save

    return save(_network().state_dict())


@cache
def legacy_seed() -> bytes:
    state = _network().state_dict()
    return _saved(lambda page: torch.save(state, page, _use_new_zipfile_serialization=False))


@cache
def script_seed() -> bytes:
    traced = torch.jit.trace(_network(), torch.zeros(2, 1, 2, 2))
    return _saved(lambda page: torch.jit.save(traced, page))


@cache
def export_seed() -> bytes:
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(_network(), (torch.zeros(2, 1, 2, 2),), dynamic_shapes=({0: batch},))
    return _saved(lambda page: torch.export.save(program, page))


@cache
def onnx_seed() -> bytes:
    from onnx import TensorProto, helper

    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 2], [0.1] * 8)
    nodes = [
        helper.make_node("Flatten", ["x"], ["f"], axis=1),
        helper.make_node("MatMul", ["f", "w"], ["y"]),
    ]
    inputs = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 2, 2])
    taken = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])
    graph = helper.make_graph(nodes, "g", [inputs], [taken], [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    content: bytes = made.SerializeToString()
    return content


def npz(**arrays: Any) -> bytes:
    return _saved(lambda page: np.savez(page, **arrays))


def npz_seed() -> bytes:
    return npz(images=np.zeros((4, 2, 2), np.uint8), labels=np.arange(4) % 2, classes=np.array(["a", "b"]))


def logits_seed() -> bytes:
    return npz(logits=np.zeros((4, 2), np.float32), ids=np.arange(4), labels=np.arange(4) % 2)


def parquet(table: pa.Table) -> bytes:
    return _saved(lambda page: pq.write_table(table, page))


def png(size: tuple[int, int] = (2, 2)) -> bytes:
    return _saved(lambda page: Image.new("L", size).save(page, "PNG"))


def parquet_seed() -> bytes:
    features = {"info": {"features": {"label": {"names": ["a", "b"]}}}}
    table = pa.table({"image": [png(), png()], "label": [0, 1], "ink": ["x", "y"]})
    return parquet(table.replace_schema_metadata({"huggingface": json.dumps(features)}))


def logits_parquet_seed() -> bytes:
    return parquet(pa.table({"logits": [[0.0, 1.0]] * 4, "ids": [0, 1, 2, 3]}))


def _samples(uri: str) -> Callable[[Path], Any]:
    def opened(folder: Path) -> Any:
        from services.loading.samples.source import open_samples

        samples = open_samples(SampleSpec(uri.format(folder)))
        return samples.images(0, 4)

    return opened


def _model(uri: str) -> Callable[[Path], Any]:
    def opened(folder: Path) -> Any:
        from services.loading.models.source import load_model

        return load_model(ModelSpec("m", uri.format(folder)))

    return opened


def _weights(file: str) -> Callable[[Path], Any]:
    def opened(folder: Path) -> Any:
        from services.loading.models.weights import load_weights

        return load_weights(_network(), folder / file, where="m")

    return opened


def _image_folder(folder: Path) -> Any:
    (folder / "a").mkdir(exist_ok=True)
    (folder / "0.png").replace(folder / "a" / "0.png")  # an image of no class is a fault of its own
    return _samples("imagefolder:{}?classes=a")(folder)


def _metadata(folder: Path) -> Any:
    from services.loading.samples.source import open_samples

    (folder / "a").mkdir(exist_ok=True)
    (folder / "a" / "0.png").write_bytes(png())
    return open_samples(SampleSpec(f"imagefolder:{folder}?classes=a", groups=("ink",)))


def _faces(folder: Path) -> Any:
    from services.loading.samples.schemes.celeba import read_faces

    (folder / "list_eval_partition.txt").write_text("000001.jpg 2\n000002.jpg 2\n")
    return read_faces(folder, "test")


def _partition(folder: Path) -> Any:
    from services.loading.samples.schemes.celeba import read_faces

    (folder / "list_attr_celeba.txt").write_text("1\nSmiling Young\n000001.jpg 1 -1\n")
    return read_faces(folder, "test")


def _fleet(folder: Path) -> Any:
    from jobs.fleetfile.reading import load_fleet

    return load_fleet(folder / "fleet.yaml")


def _sweep(folder: Path) -> Any:
    from jobs.training.sweepfile import load_sweep

    return load_sweep(folder / "sweep.yaml")


def _settings(folder: Path) -> Any:
    from jobs.api.settings import load_settings

    return load_settings(folder / "settings.yaml")


def _published(folder: Path) -> Any:
    from jobs.leaderboard.published import read_published

    return read_published(folder / "published.json")


def _body(kind: str) -> Callable[[Path], Any]:
    def opened(folder: Path) -> Any:
        from jobs.api.bodies import fleet_data
        from jobs.fleetfile.reading import validate_fleet

        return validate_fleet(fleet_data((folder / "body").read_bytes(), kind), source="body")

    return opened


def _bundle(folder: Path) -> Any:
    from tracking.bundle.bundle import read_bundle

    return read_bundle(str(folder))


def _training(reader: str) -> Callable[[Path], Any]:
    def opened(folder: Path) -> Any:
        from tracking.bundle import training_bundle

        return getattr(training_bundle, reader)(str(folder))

    return opened


def _progress(folder: Path) -> Any:
    from services.training.epochs.checkpoints import load_progress

    return load_progress(str(folder))


def _marker(folder: Path) -> Any:
    from tracking.bundle.marker import uploads

    return uploads(str(folder))


def _ending(folder: Path) -> Any:
    from jobs.submission.submission import read_ending

    return read_ending(str(folder))


def _submitted(folder: Path) -> Any:
    from jobs.submission.submission import read_fleet

    return read_fleet(str(folder))


def _process(folder: Path) -> Any:
    from jobs.submission.local_jobs import LocalJobs

    home = folder / "submissions" / "shop-0123456789abcdef"
    home.mkdir(parents=True, exist_ok=True)
    (home / "process.json").write_bytes((folder / "process.json").read_bytes())
    return LocalJobs(str(folder)).infos()


def _shard(folder: Path) -> Any:
    from services.storage.shards import read_shard

    return read_shard(str(folder / "shard.parquet"))


def _uri(folder: Path) -> Any:
    from services.loading.uris import parse_uri

    return parse_uri((folder / "uri.txt").read_bytes().decode("utf-8", "replace"))


def _cron(folder: Path) -> Any:
    from jobs.schedules.cron import Cron

    text = (folder / "cron.txt").read_bytes().decode("utf-8", "replace")
    expression, _, zone = text.partition("@")
    return Cron(expression, zone or "UTC").after(datetime(2026, 11, 28, tzinfo=UTC))


def _pictures(folder: Path) -> Any:
    from services.storage.traversals import Traversal

    return Traversal.from_bytes((folder / "traversals.npz").read_bytes(), "traversals.npz")


def _text(content: str) -> Callable[[], bytes]:
    return lambda: content.encode()


def _json(content: Any) -> Callable[[], bytes]:
    return lambda: json.dumps(content).encode()


def _fleet_body() -> bytes:
    import yaml

    return json.dumps(yaml.safe_load(FLEET)).encode()


def _submission_seed() -> bytes:
    return b'{"schema_version": 1, "id": "shop-0123456789abcdef", "key": "", "fleet": ' + _fleet_body() + b"}"


def _shard_seed() -> bytes:
    table = pa.table({"score": [0.5, 1.0], "row": [0, 1]})
    return parquet(table.replace_schema_metadata({"schema_version": "1"}))


def _traversal_seed() -> bytes:
    from services.storage.traversals import Traversal

    images, labels = np.zeros((1, 3, 4, 4, 1), np.uint8), np.zeros((1, 3), int)
    moves = np.zeros((1, 2))
    return Traversal(np.zeros(1, int), np.linspace(-1, 1, 3), images, labels, moves, moves > 0).to_bytes()


UPGRADE = Path(__file__).parents[1] / "upgrade" / "fixtures" / "v0.1.0"


def _frozen(name: str) -> Callable[[], bytes]:
    """A file that the first version wrote."""
    return lambda: next(UPGRADE.rglob(name)).read_bytes()


DOORS = {
    "fleet": Door("fleet.yaml", _text(FLEET), _fleet),
    "sweep": Door("sweep.yaml", _text(SWEEP), _sweep),
    "settings": Door("settings.yaml", _text(SETTINGS), _settings),
    "published": Door("published.json", _json(PUBLISHED), _published),
    "json body": Door("body", _fleet_body, _body("application/json")),
    "yaml body": Door("body", _text(FLEET), _body("application/yaml")),
    "weights": Door("w.pt", weights_seed, _weights("w.pt")),
    "legacy weights": Door("w.pth", legacy_seed, _weights("w.pth")),
    "safetensors": Door("w.safetensors", safetensors_seed, _weights("w.safetensors")),
    "torchscript": Door("m.pt", script_seed, _model("torchscript:{}/m.pt")),
    "export": Door("m.pt2", export_seed, _model("export:{}/m.pt2")),
    "onnx": Door("m.onnx", onnx_seed, _model("onnx:{}/m.onnx")),
    "logits npz": Door("l.npz", logits_seed, _model("logits:{}/l.npz")),
    "logits parquet": Door("l.parquet", logits_parquet_seed, _model("logits:{}/l.parquet")),
    "npz": Door("s.npz", npz_seed, _samples("npz:{}/s.npz")),
    "parquet": Door("s.parquet", parquet_seed, _samples("parquet:{}/s.parquet")),
    "image": Door("0.png", png, _image_folder),
    "metadata": Door("metadata.csv", _text("file_name,ink\na/0.png,dark\n"), _metadata),
    "celeba": Door("list_attr_celeba.txt", _text("2\nSmiling Young\n000001.jpg 1 -1\n000002.jpg -1 1\n"), _faces),
    "celeba split": Door("list_eval_partition.txt", _text("000001.jpg 2\n"), _partition),
    "bundle": Door("bundle.json", _frozen("bundle.json"), _bundle),
    "sweep result": Door("sweep.json", _frozen("sweep.json"), _training("read_sweep")),
    "trial": Door("trial.json", _frozen("trial.json"), _training("read_trial")),
    "curves": Door("curves.parquet", _frozen("curves.parquet"), _training("read_curves")),
    "progress": Door("progress.safetensors", _frozen("progress.safetensors"), _progress),
    "marker": Door("tracking.json", _json({"uploads": [{"tracking_uri": "sqlite:///x"}]}), _marker),
    "ending": Door("ending.json", _frozen("ending.json"), _ending),
    "submission": Door("fleet.json", _submission_seed, _submitted),
    "process": Door("process.json", _json({"driver": "1:2:x", "metadata": {}, "started": ""}), _process),
    "shard": Door("shard.parquet", _shard_seed, _shard),
    "traversals": Door("traversals.npz", _traversal_seed, _pictures),
    "uri": Door("uri.txt", _text("factory:shop.nets:resnet?depth=20&weights=w.pt"), _uri),
    "cron": Door("cron.txt", _text("0 3 * * 1-5@Europe/Berlin"), _cron),
}
