"""The sweep file as one typed, frozen tree: method x architecture x data set x seed, and mapper x data set x seed.

As `jobs.fleetfile.tree` for fleet files: everything that can be found
without torch is found here, and all of it together.
`jobs.training.sweepfile` reads YAML into this tree and validates the methods by the classes that train.
"""

from __future__ import annotations

import re
from string import Formatter
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from jobs.fleetfile.inputs import JobName
from jobs.fleetfile.tree import GeneralisationConfig, Part, Place, PlacementConfig, Seed, ServerConfig, WorkerCount
from services.loading.samples.attributes import LIGHT, STROKES
from services.records.trials import CLASS, DataSpec
from services.registry import did_you_mean
from services.training.mapper_recipe import MapperRecipe
from services.training.recipe import Recipe
from services.training.starting import is_source

LABEL = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$"
Label = Annotated[str, Field(pattern=LABEL)]

ELSEWHERE = {
    "seed": "seeds",
    "device": "resources.gpus",
    "precision": "resources.precision",
    "channels_last": "resources.channels_last",
    "holdout": "the data set's holdout",
}
"""Fields of a recipe that a sweep file says elsewhere, and where."""

MAPPERS_ELSEWHERE = ("seed", "device")
"""Those of a mapper's recipe."""

ATTRIBUTES = (*STROKES, *LIGHT)
"""What can be measured from images."""

PLACEHOLDERS = ("sweep", "trial", "method", "architecture", "dataset", "seed")
MAX_TRIALS = 10_000
MAX_COMBINATIONS = 10 * MAX_TRIALS


class RecipeConfig(Part, Recipe):
    """How networks are trained; only the fields that are given count, so that one recipe overrides another."""

    REFUSED: ClassVar = tuple(ELSEWHERE)
    """Fields of a recipe that a sweep has elsewhere: no message offers them."""

    @field_validator(*ELSEWHERE, mode="before")
    @classmethod
    def _belongs_elsewhere(cls, value: Any, info: ValidationInfo) -> Any:
        raise ValueError(f"it under {ELSEWHERE[info.field_name or '']}")

    def explicit(self) -> dict[str, Any]:
        """The fields that the file gives."""
        return self.model_dump(exclude_unset=True)


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class ArchitectureConfig(Part):
    """A network to train, and any argument of its factory (width, depth, patch)."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(description="small_cnn, cnn4, cifar_resnet, resnet18, resnet34, vgg19, wrn28_10, vit_s ...")
    label: Label | None = Field(None, description="Its name in trials; default: name.")
    init: str | None = Field(
        None,
        description="What it starts from: a file of weights, or a model source (mlflow:, export:, factory: ...); "
        "default: drawn by the seed.",
    )
    init_key: str | None = Field(None, description="Which weights of that file, where it holds several sets.")
    recipe: RecipeConfig = Field(RecipeConfig(), description="What differs from the sweep's recipe for it.")

    @model_validator(mode="after")
    def _plain(self) -> ArchitectureConfig:
        if self.init_key is not None and self.init is None:
            raise ValueError("init_key names weights of the file init, which is not given")
        if self.init_key is not None and is_source(str(self.init)):
            raise ValueError("no init_key beside a model source; say &key= in it")
        if "seed" in self.options():
            raise ValueError("no seed here: every network follows the sweep's seeds")
        odd = [name for name, value in self.options().items() if not isinstance(value, str | int | float | bool)]
        if odd:
            raise ValueError(f"numbers, texts, true or false as arguments of the network ({', '.join(odd)} is none)")
        return self

    def options(self) -> dict[str, Any]:
        """The factory's arguments."""
        return dict(self.model_extra or {})


class ExtraConfig(Part):
    """Samples beside those of the data set, generated ones for example, that make up a share of every batch."""

    root: str = Field(description="URI of a sample source with the data set's shape and classes: npz:generated.npz.")
    share: float = Field(gt=0, lt=1, description="Of each batch; an epoch is one pass over the data set's own samples.")


class DatasetConfig(Part):
    """A training set, and the part of it that is taken."""

    name: str = Field(
        description="digits, mnist, svhn, cifar10, cifar100, cinic10, tinyimagenet, imagenet50, or samples: any source"
    )
    root: str | None = Field(
        None, description="Folder that holds it, in the layout of its authors; of samples their URI; digits has none."
    )
    label: Label | None = Field(None, description="Its name in trials; default: name.")
    size: int | None = Field(None, ge=8, le=1024, description="Pixels a side, for imagenet50.")
    per_class: int | None = Field(None, ge=1, description="At most so many samples of each class, drawn with seed.")
    limit: int | None = Field(None, ge=1, description="At most so many samples in all, in proportion to the classes.")
    holdout: float = Field(
        0.0, ge=0, lt=1, description="Share of each class that is held out, to select and steer by; never trained on."
    )
    seed: Seed = Field(0, description="Of the subset and of what is held out; the same for all trials.")
    extra: ExtraConfig | None = Field(None, description="Samples that are mixed in where networks are trained.")
    recipe: RecipeConfig = Field(RecipeConfig(), description="What differs on it: mean, std, crop, flip.")

    def spec(self) -> DataSpec:
        """As workers need it."""
        return DataSpec(
            self.label or self.name,
            self.name,
            self.root,
            self.size,
            self.per_class,
            self.limit,
            self.holdout,
            self.seed,
            self.extra.root if self.extra else None,
            self.extra.share if self.extra else 0.0,
        )


def _one_of(*known: str) -> BeforeValidator:
    """A check that names the nearest of the names that are known."""

    def check(value: Any) -> Any:
        if value not in known:
            raise ValueError(f"{', '.join(known[:-1])} or {known[-1]}; {did_you_mean(str(value), list(known))}")
        return value

    return BeforeValidator(check)


class MapperRecipeConfig(Part, MapperRecipe):
    """How mappers are trained."""

    REFUSED: ClassVar = MAPPERS_ELSEWHERE

    @field_validator(*MAPPERS_ELSEWHERE, mode="before")
    @classmethod
    def _belongs_elsewhere(cls, value: Any, info: ValidationInfo) -> Any:
        raise ValueError(f"it under {ELSEWHERE[info.field_name or '']}")


class MapperConfig(Part):
    """A mapper to train."""

    kind: Literal["vae", "conditional_gan"] = Field(description="A beta-VAE, or a conditional GAN with an encoder.")
    label: Label | None = Field(None, description="Its name in trials; default: kind.")
    latents: int = Field(
        10,
        ge=2,
        le=4096,
        description="Latent columns; of a conditional GAN, those of its noise, before the conditions.",
    )
    width: int = Field(16, ge=1, le=2**20, description="Channels of the first convolution; others follow from it.")
    conditions: tuple[Annotated[str, _one_of(CLASS, *ATTRIBUTES)], ...] = Field(
        (),
        max_length=20,
        description="What a conditional GAN is conditioned on: `class`, and attributes measured from the images.",
    )
    factors: tuple[Annotated[str, _one_of(*ATTRIBUTES)], ...] | None = Field(
        None,
        max_length=20,
        description="Attributes whose mutual information gap is reported; default: those of `conditions`.",
    )
    recipe: MapperRecipeConfig = Field(MapperRecipeConfig(), description="How it is trained.")

    @field_validator("conditions", "factors")
    @classmethod
    def _each_once(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and len(set(value)) < len(value):
            raise ValueError("each attribute once")
        return value

    @model_validator(mode="after")
    def _of_its_kind(self) -> MapperConfig:
        if self.kind == "vae" and self.conditions:
            raise ValueError("no conditions for a vae; name attributes under factors, or use conditional_gan")
        if self.kind == "conditional_gan" and not self.conditions:
            raise ValueError("conditions for a conditional_gan, such as [class, thickness]; or use vae")
        return self

    @property
    def title(self) -> str:
        """Its name in trials."""
        return self.label or self.kind

    @property
    def judged(self) -> tuple[str, ...]:
        """The factors by which it is judged."""
        conditions = tuple(name for name in self.conditions if name != CLASS)
        return conditions if self.factors is None else self.factors

    @property
    def measured(self) -> tuple[str, ...]:
        """All attributes that it needs of the images."""
        return tuple(dict.fromkeys(name for name in (*self.conditions, *self.judged) if name != CLASS))


class ExcludeConfig(Part):
    """Combinations to leave out: those that match every field given."""

    method: Label | None = Field(None, description="Label of a method.")
    architecture: Label | None = Field(None, description="Label of an architecture.")
    mapper: Label | None = Field(None, description="Label of a mapper.")
    dataset: Label | None = Field(None, description="Label of a data set.")
    seed: Seed | None = Field(None, description="A seed.")

    @model_validator(mode="after")
    def _not_empty(self) -> ExcludeConfig:
        if not self.model_dump(exclude_none=True):
            raise ValueError("at least one of method, architecture, mapper, dataset and seed")
        return self


class HalvingConfig(Part):
    """Early stop of the weaker combinations of method and architecture, on each data set."""

    first: int = Field(ge=1, le=1_000_000, description="Epochs after which combinations are compared first.")
    factor: int = Field(
        3, ge=2, le=1000, description="The best of so many go on, for so many times as long before the next look."
    )
    by: Literal["clean", "robust", "worst-class"] = Field(
        "robust", description="Held-out accuracy that is compared: the best so far, mean over seeds."
    )


class TrainResourcesConfig(PlacementConfig):
    """What the sweep asks of the machine or the cluster."""

    trials: WorkerCount = Field(
        "auto", description="Trials side by side; auto: as many as fit. Runner local trains one."
    )
    workers: int = Field(1, ge=1, le=512, description="Workers that share each batch of a trial; above 1 on Ray alone.")
    threads: int | None = Field(
        None, ge=1, le=1024, description="Torch threads a worker; default: its cores. Rounding depends on it."
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="bfloat16 runs networks under autocast; losses and weights stay float32."
    )
    channels_last: bool = Field(False, description="Memory format; faster for convolutions on most devices.")

    @model_validator(mode="after")
    def _together(self) -> TrainResourcesConfig:
        if self.workers > 1 and self.runner == "local":
            raise ValueError("runner: ray where workers is above 1; in process there is one worker")
        if self.workers > 1 and 0 < self.gpus < 1:
            raise ValueError("a whole number of gpus where workers is above 1; workers cannot share a GPU")
        return self


class TrainTrackingConfig(ServerConfig):
    """Where MLflow is, and what of the trials goes there."""

    log_models: bool = Field(True, description="Log each trained network as a graph with its signature.")


class SweepConfig(Part):
    """A sweep file."""

    sweep: JobName = Field(
        description="Name of the sweep: letters, digits, dot, dash, underscore. It names the MLflow experiment."
    )
    methods: tuple[Any, ...] = Field(
        (),
        max_length=1000,
        description="Names, or mappings with parameters, label and recipe. May be left out beside mappers.",
    )
    architectures: tuple[Annotated[ArchitectureConfig, BeforeValidator(_named)], ...] = Field(
        (),
        max_length=1000,
        description="Names, or mappings with arguments of the network. They go with methods.",
    )
    mappers: tuple[MapperConfig, ...] = Field(
        (),
        max_length=1000,
        description="Mappers to train, for the measure `projection`; each on every data set and seed.",
    )
    datasets: tuple[Annotated[DatasetConfig, BeforeValidator(_named)], ...] = Field(
        min_length=1, max_length=100, description="Names, or mappings."
    )
    seeds: tuple[Seed, ...] = Field((0,), min_length=1, max_length=1000, description="One trial each, of everything.")
    recipe: RecipeConfig = Field(
        RecipeConfig(), description="How every network is trained, if nothing nearer says otherwise."
    )
    halving: HalvingConfig | None = Field(None, description="Early stop of the weaker combinations; default: none.")
    exclude: tuple[ExcludeConfig, ...] = Field((), max_length=1000, description="Combinations to leave out.")
    resources: TrainResourcesConfig = Field(
        TrainResourcesConfig(), description="What the sweep asks of the machine or the cluster."
    )
    storage: Place = Field(
        "classwise-runs", min_length=1, description="Local folder or fsspec URL for checkpoints and results."
    )
    tracking: TrainTrackingConfig = Field(TrainTrackingConfig(), description="Where MLflow is.")
    register_as: str | None = Field(
        None,
        alias="register",
        min_length=1,
        description="Register every network under this name, in which {method}, {trial} and the like are filled in.",
    )
    generalisation: GeneralisationConfig | None = Field(
        GeneralisationConfig(), description="Training sample of `--audit`; null measures no generalisation error."
    )
    factories: tuple[str, ...] = Field(
        ("services.training.*",), max_length=1000, description="Modules that audits of the trained networks may import."
    )

    @property
    def reads_mlflow(self) -> bool:
        """Whether it names an `mlflow:` source of models or samples."""
        extra = [each.extra.root for each in self.datasets if each.extra]
        sources = [*(each.root for each in self.datasets), *extra, *(each.init for each in self.architectures)]
        return any(source.startswith("mlflow:") for source in sources if source)

    @field_validator("seeds")
    @classmethod
    def _once(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(value)) < len(value):
            raise ValueError("each seed once")
        return value

    @field_validator("register_as")
    @classmethod
    def _template(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            names = [name for _, name, _, _ in Formatter().parse(value) if name is not None]
        except ValueError as error:
            raise ValueError(f"a template such as shop-{{method}} ({error})") from None
        wrong = [name for name in names if name not in PLACEHOLDERS]
        if wrong:
            raise ValueError(f"only {', '.join('{' + name + '}' for name in PLACEHOLDERS)} in braces")
        if re.search(r"[/:]", value):
            raise ValueError("a name without / and :, which MLflow refuses in names of models")
        return value
