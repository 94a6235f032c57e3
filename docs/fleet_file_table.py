"""Writes the tables of docs/fleet-file.md from the models of jobs/config.py: `python docs/fleet_file_table.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs.config import FleetConfig

DOCUMENT = Path(__file__).with_name("fleet-file.md")
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"

HEADINGS = {
    "FleetConfig": "The file",
    "ModelConfig": "models: one entry a model",
    "InputConfig": "input: what a network expects",
    "ThreatConfig": "models[].threat_model",
    "SamplesConfig": "samples",
    "TemperatureConfig": "temperature",
    "IntervalsConfig": "intervals",
    "GateConfig": "gates: one entry a gate",
    "TrackingConfig": "tracking",
    "ResourcesConfig": "resources",
}
MEANINGS = {
    "FleetConfig.samples": "The labelled images to audit on.",
    "FleetConfig.temperature": "How the temperature of the GREAT score is chosen.",
    "FleetConfig.intervals": "Method and level of all intervals.",
    "FleetConfig.gates": "Conditions on which a model ships. Without gates every model passes: measured, not judged.",
    "FleetConfig.tracking": "Where MLflow is.",
    "FleetConfig.resources": "What the audit asks of the machine or the cluster.",
    "FleetConfig.models": "The models, at most 10,000, each name once.",
    "FleetConfig.seed": "Of attack starts, noise, and the order in which betting takes the samples.",
    "ModelConfig.uri": "Where the model comes from; see sources.md.",
    "ModelConfig.input": "Input contract of this model; left out, the file's `input` holds.",
    "ModelConfig.outputs": "What the network returns. Declared, never guessed; preflight refuses a wrong declaration.",
    "ModelConfig.threat_model": "Recorded; models with different threat models get a note, for ranking them misleads.",
    "ModelConfig.stochastic": "A declared randomised defence: two passes may differ.",
    "ModelConfig.allow_unpickling": "Load a checkpoint that needs pickle, which runs code. Becomes an MLflow tag.",
    "ThreatConfig.norm": "Norm of the perturbation.",
    "SamplesConfig.uri": "Where the samples come from; see sources.md.",
    "SamplesConfig.per_class": "At most so many samples of each class, drawn with `seed`; left out, all.",
    "SamplesConfig.limit": "At most so many samples in all, in proportion to the classes; left out, all.",
    "SamplesConfig.seed": "Of the draw. A larger `per_class` with the same seed contains the smaller one.",
    "SamplesConfig.on_corrupt": "Whether an unreadable image ends the audit, or is left out and counted by class.",
    "TemperatureConfig.policy": "See statistics.md.",
    "TemperatureConfig.value": "T of policy `fixed`, and of any other policy when it cannot choose one.",
    "TemperatureConfig.low": "Smallest temperature tried.",
    "TemperatureConfig.high": "Largest temperature tried.",
    "TemperatureConfig.step": "Coarse grid step.",
    "TemperatureConfig.fine_step": "Step around the best coarse temperature.",
    "GateConfig.metric": "What is judged. `falsified`, the refuted share of claims, needs `great` and `minimal`.",
    "GateConfig.grouping": "`class`, or a name from `groups`.",
    "GateConfig.at_least": "Passes when the lower bound is at least this.",
    "GateConfig.at_most": "Passes when the upper bound is at most this.",
    "ResourcesConfig.workers": "Actors, at most 1,024; auto: one a GPU when GPUs are asked for, else one a core.",
    "TrackingConfig.enabled": "Log to MLflow at the end; `classwise sync` can do it later.",
}
"""Meanings of fields that have no description, or too short a one, in jobs/config.py."""

Schema = dict[str, Any]


def fields() -> Iterator[tuple[str, str, Schema, bool]]:
    """(part, field, its JSON schema, required) of every field of the fleet file."""
    whole = FleetConfig.model_json_schema()
    parts = {"FleetConfig": whole, **whole["$defs"]}
    for part in [*HEADINGS, *(name for name in parts if name not in HEADINGS)]:
        for field, schema in parts[part]["properties"].items():
            yield part, field, schema, field in parts[part].get("required", ())


def tables() -> str:
    """The Markdown between the document's markers."""
    lines: list[str] = []
    seen = ""
    for part, field, schema, required in fields():
        if part != seen:
            heading = HEADINGS.get(part, part)
            lines += ["", f"### {heading}", "", "| field | type | default | meaning |", "|---|---|---|---|"]
            seen = part
        default = "required" if required else _default(schema)
        lines.append(f"| `{field}` | {_type(schema)} | {default} | {meaning(part, field, schema)} |")
    return "\n".join([*lines[1:], ""])


def meaning(part: str, field: str, schema: Schema) -> str:
    """The sentence of a field; KeyError when there is none anywhere."""
    text = MEANINGS.get(f"{part}.{field}") or schema.get("description")
    if not text:
        raise KeyError(f"no meaning for {part}.{field}: add a description to jobs/config.py or to MEANINGS")
    return text.replace("|", "\\|")


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


def replaced(text: str) -> str:
    """The document with its tables made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(replaced(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
