"""Writes the tables of the job files in docs/ from their models in jobs/: `python docs/file_tables.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from jobs.fleetfile.tree import FleetConfig
from jobs.training.sweep_tree import ELSEWHERE, MAPPERS_ELSEWHERE, SweepConfig
from services.metrics import METRICS

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"

FLEET_HEADINGS = {
    "FleetConfig": "The file",
    "ModelConfig": "models: one entry a model",
    "InputConfig": "input: what a network expects",
    "ThreatConfig": "models[].threat_model",
    "SamplesConfig": "samples",
    "TemperatureConfig": "temperature",
    "IntervalsConfig": "intervals",
    "GateConfig": "gates: one entry a gate",
    "EarlyConfig": "early: what `decide: early` leaves out",
    "NotifyConfig": "notify: one entry a webhook",
    "PromoteConfig": "promote: of the file, or of a model",
    "TrackingConfig": "tracking",
    "ResourcesConfig": "resources",
}
GATE_METRICS = "; ".join(f"`{metric.name}`: {metric.meaning}" for metric in METRICS.values())
FLEET_MEANINGS = {
    "FleetConfig.samples": "The labelled images to audit on.",
    "FleetConfig.temperature": "How the temperature of the GREAT score is chosen.",
    "FleetConfig.intervals": "Method and level of all intervals.",
    "FleetConfig.gates": "Conditions on which a model ships. Without gates every model is measured and not judged.",
    "FleetConfig.early": "What an audit with `decide: early` leaves out.",
    "FleetConfig.tracking": "Where MLflow is.",
    "FleetConfig.resources": "What the audit asks of the machine or the cluster.",
    "FleetConfig.models": "The models, at most 10,000, each name once.",
    "FleetConfig.seed": "Of attack starts, noise, and the order in which betting takes the samples.",
    "ModelConfig.uri": "Where the model comes from; see sources.md.",
    "ModelConfig.input": "Input contract of this model; left out, the file's `input` holds.",
    "ModelConfig.outputs": "What the network returns (sources.md); declared, and refused where that is wrong.",
    "ModelConfig.threat_model": "Recorded; models with different threat models get a note, for ranking them misleads.",
    "ModelConfig.stochastic": "A declared randomised defence: two passes may differ.",
    "ModelConfig.allow_unpickling": "Load a checkpoint that needs pickle, which runs code. Becomes an MLflow tag.",
    "ThreatConfig.norm": "Norm of the perturbation, or common corruptions.",
    "SamplesConfig.uri": "Where the samples come from; see sources.md.",
    "SamplesConfig.per_class": "At most so many samples of each class, drawn with `seed`; left out, all.",
    "SamplesConfig.limit": "At most so many samples in all, by share of the classes, at least one of each; none: all.",
    "SamplesConfig.seed": "Of the draw. A larger `per_class` or `limit` with the same seed contains the smaller one.",
    "SamplesConfig.on_corrupt": "Whether an unreadable image ends the audit, or is left out and counted by class.",
    "TemperatureConfig.policy": "See statistics.md.",
    "TemperatureConfig.value": "T of policy `fixed`, and of any other policy when it cannot choose one.",
    "TemperatureConfig.low": "Smallest temperature tried.",
    "TemperatureConfig.high": "Largest temperature tried.",
    "TemperatureConfig.step": "Coarse grid step.",
    "TemperatureConfig.fine_step": "Step around the best coarse temperature.",
    "GateConfig.metric": f"What is judged. {GATE_METRICS}.",
    "GateConfig.grouping": "`class`, or a name from `groups`.",
    "GateConfig.at_least": "Passes when the lower bound is at least this.",
    "GateConfig.at_most": "Passes when the upper bound is at most this.",
    "ResourcesConfig.workers": "Actors, at most 1,024; auto: one a GPU when GPUs are asked for, else one a core.",
    "TrackingConfig.enabled": "Log to MLflow at the end; `classwise sync` can do it later.",
}
"""Meanings of fields that have no description, or too short a one, in jobs/."""

SWEEP_HEADINGS = {
    "SweepConfig": "The file",
    "DatasetConfig": "datasets: one entry a training set",
    "ExtraConfig": "datasets[].extra",
    "ArchitectureConfig": "architectures: one entry a network",
    "RecipeConfig": "recipe: of the sweep, of a data set, an architecture or a method",
    "Budget": "recipe.attack",
    "MapperConfig": "mappers: one entry a mapper",
    "MapperRecipeConfig": "mappers[].recipe",
    "HalvingConfig": "halving",
    "ExcludeConfig": "exclude: one entry a rule",
    "TrainResourcesConfig": "resources",
    "TrainTrackingConfig": "tracking",
    "GeneralisationConfig": "generalisation",
}
SWEEP_MEANINGS = {
    "SweepConfig.seeds": "One trial of everything for each: initial weights, order, augmentation and noise follow it.",
    "SweepConfig.recipe": "How every network is trained, unless a data set, architecture or method says otherwise.",
    "SweepConfig.resources": "What the sweep asks of the machine or the cluster.",
    "SweepConfig.tracking": "Where MLflow is.",
    "SweepConfig.generalisation": "The training sample of `--audit`; `null` measures no generalisation error.",
    "RecipeConfig.epochs": "Passes over the training data.",
    "RecipeConfig.batch": "Samples a step, of all workers together.",
    "RecipeConfig.optimizer": "The other defaults are those of SGD; AdamW wants a rate of about 0.001.",
    "RecipeConfig.lr": "Learning rate.",
    "RecipeConfig.momentum": "Of SGD; of AdamW the decay of the first moment.",
    "RecipeConfig.nesterov": "Nesterov's momentum, of SGD.",
    "RecipeConfig.weight_decay": "On all weights; of AdamW beside the gradient's step.",
    "RecipeConfig.schedule": "`steps` multiplies the rate by `decay` at each of `milestones`; `cosine` ends at 0.",
    "RecipeConfig.milestones": "Shares of the epochs.",
    "RecipeConfig.decay": "Factor at each milestone.",
    "RecipeConfig.warmup": "Epochs over which the rate rises to `lr`.",
    "RecipeConfig.ramp": "Epochs over which an attack's radius and step rise to their budget; helps at MNIST's 0.3.",
    "RecipeConfig.clip": "Largest gradient norm.",
    "RecipeConfig.crop": "Pixels of zero padding before a random crop.",
    "RecipeConfig.flip": "Random horizontal flips.",
    "RecipeConfig.mean": "Normalisation before the network, one value a channel; goes into the audit's input contract.",
    "RecipeConfig.std": "Goes with `mean`.",
    "RecipeConfig.select": "Which epoch's weights are kept, judged on what is held out; with a `holdout` the default "
    "is `robust`, of plain training `clean`.",
    "RecipeConfig.patience": "Stop after so many epochs without a better held-out score.",
    "RecipeConfig.attack": "How held-out samples are attacked; left out, by the method's own budget. Also the threat "
    "model of a method that has none.",
    "RecipeConfig.averaging": "`ema`, `step-ema`, `swa`, `fair-ema` or the fields of one: the weights' average is "
    "judged and kept.",
    "MapperRecipeConfig.epochs": "Passes over the training data.",
    "MapperRecipeConfig.batch": "Samples a step.",
    "MapperRecipeConfig.lr": "Learning rate of Adam.",
    "MapperRecipeConfig.holdout": "Share of the images that are never trained on and judge the mapper.",
    "MapperRecipeConfig.beta": "Weight of the divergence, of a VAE: a larger one presses latents to be independent.",
    "MapperRecipeConfig.adversarial": "Weight of the critic's verdict, of a conditional GAN.",
    "MapperRecipeConfig.reconstruction": "Weight of the squared error: 10 suits 8x8 images, 28x28 ones want about 100.",
    "MapperRecipeConfig.regression": "Weight of finding latents and conditions back.",
    "MapperRecipeConfig.critic_rate": "The critic's learning rate as a share of `lr`.",
    "MapperRecipeConfig.noise_std": "Standard deviation of the noise that is added to encoded noise.",
    "MapperRecipeConfig.latent_penalty": "Weight of the squared length of encoded noise.",
    "Budget.epsilon": 'Radius of the Linf ball, in [0,1] pixel units; "8/255" may be written so.',
    "Budget.step": "Length of a step.",
    "Budget.steps": "Steps.",
    "Budget.random_start": "Begin at a random point of the ball.",
    "ArchitectureConfig.name": "One of the architectures below.",
    "ArchitectureConfig.recipe": "What differs from the sweep's recipe for it.",
    "DatasetConfig.name": "One of the data sets below.",
    "TrainTrackingConfig.enabled": "Log every finished trial to MLflow; `classwise sync` can do it later.",
    "TrainResourcesConfig.cpus": "Cores a worker of a trial.",
    "TrainResourcesConfig.gpus": "GPUs a worker of a trial, or a share of one: 0.25 packs four trials on a GPU.",
}

Schema = dict[str, Any]


@dataclass(frozen=True)
class Document:
    """A page with generated tables: its file, the model of the job file, headings by part, meanings by PART.FIELD."""

    path: Path
    model: type[BaseModel]
    headings: Mapping[str, str]
    meanings: Mapping[str, str]
    left_out: frozenset[str] = frozenset()

    def fields(self) -> Iterator[tuple[str, str, Schema, bool]]:
        """(part, field, its JSON schema, required) of every field of the job file."""
        whole = self.model.model_json_schema()
        parts = {self.model.__name__: whole, **whole["$defs"]}
        for part in self.headings:
            for field, schema in parts[part]["properties"].items():
                if f"{part}.{field}" not in self.left_out:
                    yield part, field, schema, field in parts[part].get("required", ())

    def tables(self) -> str:
        """The Markdown between the document's markers."""
        lines: list[str] = []
        seen = ""
        for part, field, schema, required in self.fields():
            if part != seen:
                heading = self.headings[part]
                lines += ["", f"### {heading}", "", "| field | type | default | meaning |", "|---|---|---|---|"]
                seen = part
            default = "required" if required else _default(schema)
            lines.append(f"| `{field}` | {_type(schema)} | {default} | {self.meaning(part, field, schema)} |")
        return "\n".join([*lines[1:], ""])

    def meaning(self, part: str, field: str, schema: Schema) -> str:
        """The sentence of a field; KeyError when there is none anywhere."""
        text = self.meanings.get(f"{part}.{field}") or schema.get("description")
        if not text:
            raise KeyError(f"no meaning for {part}.{field}: add a description to jobs/ or to the meanings here")
        return text.replace("|", "\\|")

    def replaced(self, text: str) -> str:
        """The document with its tables made anew."""
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        return f"{before}{BEGIN}\n{self.tables()}\n{END}{after}"


def _default(schema: Schema) -> str:
    value = schema.get("default")
    if isinstance(value, dict):
        return "see below" if value else "none"
    return "none" if value is None else f"`{json.dumps(value)}`"


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        return "mapping"
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"] if option.get("type") != "null")
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return _list_type(schema)
    if schema.get("type") == "object":
        return "mapping of texts" if "additionalProperties" in schema else "mapping"
    words = {"integer": "whole number", "number": "number", "string": "text", "boolean": "`true`, `false`"}
    return words.get(schema.get("type", ""), "anything") + _range(schema)


def _list_type(schema: Schema) -> str:
    if "prefixItems" in schema:
        return f"list of {len(schema['prefixItems'])}: {_type(schema['prefixItems'][0])}"
    inner = schema.get("items") or {}
    return f"list of {_type(inner) if inner else 'names or mappings'}"


def _range(schema: Schema) -> str:
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    parts = [f"{sign} {_number(schema[key])}" for key, sign in signs.items() if key in schema]
    return f" {', '.join(parts)}" if parts else ""


def _number(value: float) -> str:
    return "2^63" if value == 2**63 else f"{value:,.10g}"


HERE = Path(__file__).parent
DOCUMENTS = (
    Document(HERE / "fleet-file.md", FleetConfig, FLEET_HEADINGS, FLEET_MEANINGS),
    Document(
        HERE / "training.md",
        SweepConfig,
        SWEEP_HEADINGS,
        SWEEP_MEANINGS,
        frozenset(
            [
                *(f"RecipeConfig.{name}" for name in ELSEWHERE),
                *(f"MapperRecipeConfig.{name}" for name in MAPPERS_ELSEWHERE),
            ]
        ),
    ),
)

if __name__ == "__main__":
    for document in DOCUMENTS:
        document.path.write_text(document.replaced(document.path.read_text(encoding="utf-8")), encoding="utf-8")
