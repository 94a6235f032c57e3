"""What a worker can do, as a plain class that owns one device. Ray knows it only through `services.running.cluster`.

A worker keeps the last model and the samples it opened, runs one `ShardTask` at a time and returns a `Receipt` of
counts and sums; logits and scores go to Parquet shards in the run's storage. Every task is idempotent: done twice it
writes the same file. When memory runs out the batch is halved, down to one image, and the numbers stay the same.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from services.devices import is_out_of_memory, release, started
from services.errors import ClasswiseError, Problem, ResourceError, SourceError, WorkerError, ends_worker, raised_at
from services.loading import confined
from services.measures.catalogue import measure_from
from services.measures.measure import Columns, Measure, RunContext, Scorer
from services.measures.probes.budget import from_json
from services.records import ModelSpec, Receipt, SampleSpec, ShardTask, digest_of
from services.running.picked import Picked
from services.running.readahead import ReadAhead
from services.storage import files
from services.storage.shards import read_shard, write_shard
from services.telemetry import logs

if TYPE_CHECKING:
    import torch

    from services.loading.protocols import LoadedModel, Samples
    from services.telemetry.logs import LogSetting

R = TypeVar("R")
KEPT_MODELS = 2
PROBE = 64
"""Images that a measure may look at before its first batch."""

_log = logging.getLogger("classwise.worker")


class Worker:
    """Runs shard tasks on one device.

    Args:
        device: "cpu", "cuda", or "auto" (cuda when a GPU is visible).
        threads: torch threads; 0 leaves torch's default.
        allowed_factories: patterns of modules that `factory:` and `generator:` may import.
        log: how a process of its own logs; None in the driver's, where that is settled.
        environment: variables that libraries look for (where the model registry is, and its password). Not as a runtime
            environment of Ray's, which would be written to its logs.
        confine: folders outside of which it opens nothing that a fleet names; None: as this process is confined, a
            driver's by its audit, one of its own not at all.
    """

    def __init__(
        self,
        device: str = "auto",
        threads: int = 0,
        allowed_factories: tuple[str, ...] = (),
        log: LogSetting | None = None,
        environment: tuple[tuple[str, str], ...] = (),
        confine: tuple[str, ...] | None = None,
    ) -> None:
        os.environ.update(dict(environment))
        if confine is not None:
            confined.confine(confine)
        self._wanted = device
        self._threads = threads
        self._allowed = allowed_factories
        self._log = log
        self._device = ""
        self._models: dict[str, LoadedModel] = {}
        self._samples: tuple[SampleSpec, Samples] | None = None
        self._reading = ReadAhead()
        self._scorer: tuple[tuple[str, SampleSpec], Scorer] | None = None
        self._forwards = 0
        self._halvings = 0

    def ready(self) -> str:
        """Start torch and return the device in use."""
        if self._log is not None:
            logs.configure(self._log)
        return self._start()

    def run(self, task: ShardTask) -> Receipt:
        """Do one task.

        Raises:
            ClasswiseError: the task cannot be done, for a reason a user can act on.
            WorkerError: anything else, with the original error's text.
        """
        own = dict(self._log.context) if self._log else {}
        with logs.about(**{**own, "model": task.model.name, "stage": task.kind}):
            return self._run(task)

    def _run(self, task: ShardTask) -> Receipt:
        self._forwards = self._halvings = 0
        started = time.perf_counter()
        try:
            facts, arrays = getattr(self, f"_{task.kind}")(task)
        except ClasswiseError:
            raise
        except (Exception, SystemExit) as error:  # sys.exit(0) in a network must not pass an audit
            if ends_worker(error):
                raise
            _log.debug("shard raised", exc_info=error)
            raise WorkerError(_unexpected(task, error)) from error
        seconds = time.perf_counter() - started
        counts = {"forwards": self._forwards, "seconds": round(seconds, 3)}
        logs.event(_log, logging.DEBUG, "shard done", start=task.start, stop=task.stop, **counts)
        reported = {**facts, "halvings": self._halvings} if self._halvings else facts
        return Receipt(task, task.stop - task.start, self._forwards, seconds, reported, arrays)

    # --- kinds of task -------------------------------------------------------------------------------------------

    def _preflight(self, task: ShardTask) -> tuple[dict[str, Any], dict[str, Any]]:
        from services.loading.preflight.look import preflight

        device = self._start()
        loaded = self._same_model(task)
        facts, problems = preflight(loaded, self._open(task.samples), device=device, batch=task.batch)
        shown = [[p.where, p.expected, p.found, p.remedy] for p in problems]
        able = {
            "runs": loaded.network is not None,
            "differentiable": loaded.network is not None and loaded.differentiable,
        }
        return {**loaded.facts, **facts, **able, "problems": shown, "device": device}, {}

    def _logits(self, task: ShardTask) -> tuple[dict[str, Any], dict[str, Any]]:
        samples, loaded = self._open(task.samples), self._same_model(task)
        ids, labels = samples.ids[task.start : task.stop], samples.labels[task.start : task.stop]
        if loaded.logits is not None:
            logits = loaded.logits(ids)
        else:
            logits = self._in_batches(task, lambda start, stop: self._forward(task, loaded, samples, start, stop))
        write_shard(task.target, {"id": ids, "label": labels, "logits": logits})
        return {}, {}

    def _derive(self, task: ShardTask) -> tuple[dict[str, Any], dict[str, Any]]:
        shard = read_shard(task.source)
        columns = measure_from(task.measure).from_logits(shard["logits"], shard["label"])
        write_shard(task.target, {"id": shard["id"], "label": shard["label"], **columns})
        return {}, {}

    def _measure(self, task: ShardTask) -> tuple[dict[str, Any], dict[str, Any]]:
        import torch

        samples, loaded, measure = self._open(task.samples), self._same_model(task), measure_from(task.measure)
        self._check_can_run(task, loaded, measure.gradients)
        network = self._counted(loaded)
        scorer = self._scoring(task, measure, samples)

        picked = Picked.of(task) if task.payload else None
        work = task if picked is None else replace(task, start=0, stop=len(picked.rows))

        def score(start: int, stop: int) -> Columns:
            rows = np.arange(start, stop) if picked is None else picked.rows[start:stop]
            images = self._images(task, samples, start, stop) if picked is None else self._rows(samples, rows)
            labels = torch.from_numpy(samples.labels[rows]).to(self._device)
            return scorer(network, images, labels, samples.ids[rows], seed=task.seed)

        columns = self._in_batches(work, score) if work.stop > work.start else {}
        rows = np.arange(task.start, task.stop) if picked is None else picked.rows
        columns = {"id": samples.ids[rows], "label": samples.labels[rows], **columns}
        write_shard(task.target, columns if picked is None else picked.joined(columns))
        return {}, {}

    def _calibrate(self, task: ShardTask) -> tuple[dict[str, Any], dict[str, Any]]:
        from services.numerics.temperature import GroupedCurve, TemperatureNodes

        payload = json.loads(task.payload)
        shard = read_shard(task.source)
        curve = GroupedCurve.from_logits(
            shard["logits"],
            shard["label"],
            shard["id"],
            payload["k"],
            groups=payload["groups"],
            nodes=TemperatureNodes(*payload["nodes"]),
            activation=payload["activation"],
        )
        return {}, curve.arrays()

    def _picture(self, task: ShardTask) -> tuple[dict[str, Any], dict[str, Any]]:
        samples, loaded, measure = self._open(task.samples), self._same_model(task), measure_from(task.measure)
        files.write_bytes(task.target, measure.picture(self._counted(loaded), self._context(samples)))
        return {}, {}

    def _probe(self, task: ShardTask) -> tuple[dict[str, Any], dict[str, Any]]:
        import torch

        from services.measures.probes.cheap_attacks import other_side, probe
        from services.measures.probes.probed import Probed

        samples, loaded, payload = self._open(task.samples), self._same_model(task), json.loads(task.payload)
        guard, plan = from_json(payload)
        network, rows, most = self._counted(loaded), np.array(payload["rows"]), payload.get("most")
        ids, labels = samples.ids[rows], samples.labels[rows]
        stands = np.array(payload["stands"]) if most is None else np.zeros(len(rows), dtype=np.int64)

        def look(start: int, stop: int) -> Columns:
            images, targets = self._rows(samples, rows[start:stop]), torch.from_numpy(labels[start:stop])
            targets = targets.to(self._device)
            probed = Probed(network, images, targets, ids[start:stop], guard, task.seed)
            if most is not None:
                columns, more = other_side(probed, plan, most)
                most.update(more)
                return columns
            left = torch.from_numpy(stands[start:stop] > 0).to(self._device)
            return probe(probed, plan, left, **payload["looks"])

        columns = self._in_batches(task, look)
        write_shard(task.target, {"id": ids, "label": labels, "stands": stands, **columns})
        return {}, {}

    def _transfer(self, task: ShardTask) -> tuple[dict[str, Any], dict[str, Any]]:
        import torch

        from services.measures.probes.cheap_attacks import transferred

        samples, network = self._open(task.samples), self._counted(self._same_model(task))
        donors = [(read_shard(path), radius) for path, radius in json.loads(task.payload)["donors"]]
        points = np.concatenate([shard["points"] for shard, _ in donors]).reshape(-1, *samples.shape)
        ids, labels = (np.concatenate([shard[name] for shard, _ in donors]) for name in ("id", "label"))
        radii = np.concatenate([np.full(len(shard["id"]), radius) for shard, radius in donors])

        def attempt(start: int, stop: int) -> Columns:
            images, targets = (torch.from_numpy(part[start:stop]).to(self._device) for part in (points, labels))
            return {"broken": transferred(network, images, targets)}

        write_shard(task.target, {"id": ids, "radius": radii, **self._in_batches(task, attempt)})
        return {}, {}

    def _gallery(self, task: ShardTask) -> tuple[dict[str, Any], dict[str, Any]]:
        import torch

        from services.measures.parts.examples import examples

        samples, loaded, measure = self._open(task.samples), self._same_model(task), measure_from(task.measure)
        payload = json.loads(task.payload)
        network, rows = self._counted(loaded), np.array(payload["rows"])
        known = {name: np.array(values) for name, values in payload["known"].items()}
        ids, labels = samples.ids[rows], samples.labels[rows]

        def show(start: int, stop: int) -> Columns:
            images, targets = self._rows(samples, rows[start:stop]), torch.from_numpy(labels[start:stop])
            targets = targets.to(self._device)
            own = {name: values[start:stop] for name, values in known.items()}
            points = measure.adversarials(network, images, targets, ids[start:stop], own, seed=task.seed)
            return examples(network, images, points, targets)

        kept = {name: np.array(values) for name, values in payload["kept"].items()}
        write_shard(task.target, {"id": ids, "label": labels, **kept, **self._in_batches(task, show)})
        return {}, {}

    def _embedding(self, task: ShardTask) -> tuple[dict[str, Any], dict[str, Any]]:
        from services.measures.latent.embedding import embeddings

        samples, loaded = self._open(task.samples), self._same_model(task)
        ids = samples.ids[task.start : task.stop]
        if loaded.logits is not None:
            write_shard(task.target, {"id": ids, "embedding": loaded.logits(ids)})
            return {}, {}
        network = self._counted(loaded)

        def embed(start: int, stop: int) -> Columns:
            return embeddings(network, loaded.network, self._images(task, samples, start, stop))

        write_shard(task.target, {"id": ids, **self._in_batches(task, embed)})
        return {}, {}

    # --- what they share -----------------------------------------------------------------------------------------

    def _start(self) -> str:
        if not self._device:
            self._device = started(self._wanted, self._threads)
        return self._device

    def _open(self, spec: SampleSpec) -> Samples:
        from services.loading.samples.source import open_samples

        if self._samples is None or self._samples[0] != spec:
            self._samples = (spec, open_samples(spec, allowed_factories=self._allowed))
        return self._samples[1]

    def _same_model(self, task: ShardTask) -> LoadedModel:
        """The task's model, if it is still the one that was fingerprinted."""
        loaded = self._model(task.model)
        if task.digest not in ("", loaded.digest):
            raise SourceError(_changed(task.model))
        return loaded

    def _scoring(self, task: ShardTask, measure: Measure, samples: Samples) -> Scorer:
        """The measure's scorer, which may open files and look at samples: made once, and not for each shard."""
        key = (task.measure, task.samples)
        if self._scorer is None or self._scorer[0] != key:
            self._scorer = (key, measure.scorer(self._context(samples)))
        return self._scorer[1]

    def _context(self, samples: Samples) -> RunContext:
        def probe() -> torch.Tensor:
            return self._rows(samples, np.linspace(0, len(samples) - 1, min(PROBE, len(samples))).astype(int))

        return RunContext(self._device, self._allowed, probe)

    def _model(self, spec: ModelSpec) -> LoadedModel:
        from services.loading.models.source import load_model

        key = digest_of(spec)
        if key not in self._models:
            local = [name for name, model in self._models.items() if not model.spec.remote]
            if len(local) >= KEPT_MODELS and not spec.remote:
                self._models.pop(local[0])
            self._models[key] = load_model(spec, device=self._start(), allowed_factories=self._allowed)
        return self._models[key]

    def _counted(self, loaded: LoadedModel) -> Callable[[torch.Tensor], torch.Tensor]:
        network = loaded.network
        if network is None:
            raise WorkerError(Problem(loaded.spec.name, "a model that runs", "a source of logits only"))

        def count(images: torch.Tensor) -> torch.Tensor:
            self._forwards += len(images)
            return network(images)

        return count

    def _forward(self, task: ShardTask, loaded: LoadedModel, samples: Samples, start: int, stop: int) -> Columns:
        import torch

        with torch.inference_mode():
            images = self._images(task, samples, start, stop)
            return {"logits": self._counted(loaded)(images).float().cpu().numpy()}

    def _images(self, task: ShardTask, samples: Samples, start: int, stop: int) -> torch.Tensor:
        """Rows [start, stop) on the device. A GPU computes while the next are read; a CPU's cores have enough to do."""
        import torch

        end = stop if self._device == "cpu" else task.stop
        return torch.from_numpy(self._reading.images(samples, start, stop, end)).to(self._device)

    def _rows(self, samples: Samples, rows: NDArray[np.int64]) -> torch.Tensor:
        """Images of rows in any order on the device."""
        import torch

        images = np.concatenate([samples.images(row, row + 1) for row in rows.tolist()])
        return torch.from_numpy(images).to(self._device)

    def _in_batches(self, task: ShardTask, part: Callable[[int, int], Columns]) -> Any:
        """Concatenate `part` over batches of the task's rows; on exhausted memory halve the batch and go on."""
        parts: list[Columns] = []
        position, batch = task.start, task.batch
        while position < task.stop:
            stop = min(position + batch, task.stop)
            try:
                parts.append(part(position, stop))
                position = stop
                continue
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
            # Outside the handler: the error's traceback holds the very tensors that have to go.
            batch = self._smaller(task, min(batch, stop - position))
        columns = {name: np.concatenate([columns[name] for columns in parts]) for name in parts[0]}
        return columns["logits"] if task.kind == "logits" else columns

    def _smaller(self, task: ShardTask, batch: int) -> int:
        release(self._device)
        if batch == 1:
            place = f"{task.model.name}, rows {task.start} to {task.stop}"
            remedy = "use a larger device, more of the GPU a worker (resources.gpus), or fewer workers a machine"
            raise ResourceError(Problem(place, "memory for a batch of one image", "out of memory", remedy))
        self._halvings += 1
        logs.event(_log, logging.WARNING, "out of memory: batch halved", batch=batch // 2, start=task.start)
        return batch // 2

    @staticmethod
    def _check_can_run(task: ShardTask, loaded: LoadedModel, gradients: bool) -> None:
        if loaded.network is None or (gradients and not loaded.differentiable):
            need = "gradients" if loaded.network is not None else "the network itself"
            name = json.loads(task.measure)["name"]
            raise WorkerError(Problem(f"{task.model.name}, {name}", f"a model that gives {need}", task.model.uri))


def _changed(spec: ModelSpec) -> Problem:
    remedy = "run the audit again when nothing writes there; on a cluster, bring files and code on the nodes up to date"
    return Problem(f"{spec.name} ({spec.uri})", "the weights and code the audit began with", "others", remedy)


def _unexpected(task: ShardTask, error: BaseException) -> Problem:
    remedy = "fix it and run the audit again; finished shards are kept"
    return Problem(task.title, "the task to finish", raised_at(error), remedy)
