"""Attribute tolerance as a measure: how far each latent factor moves before the label does, averaged over factors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from services.errors import MeasureError, Problem
from services.measures.measure import BACKWARD, Columns, Measure, RunContext, Scorer
from services.records import Column, Series
from services.records.trials import LEAST_EXPLAINED

if TYPE_CHECKING:
    import torch

    from services.loading.mappers import LoadedMapper, Reconstruction
    from services.measures.latent.boundaries import Axes, Projected
    from services.measures.measure import Network

Index = Annotated[int, Field(ge=0)]


class Projection(Measure):
    """Tolerance of a sample to its attributes: Tol of `numerics.attributes.tolerance` by its bound, in [0, 1].

    The sample is encoded; each latent dimension in turn is put to its centre and moved from there down and up, at most
    one unit each way, until the label changes. ``score = mean_d (m_d^- + m_d^+) / 2`` with the moves m in units, so 1
    is "no attribute changes the label within its range". Whether the label was right plays no part: a constant
    classifier scores 1, so read `clean` beside it. Source: APPS, Algorithm 1, which leaves open whose label must stay:
    `keeps` chooses.

    Attributes:
        mapper: URI of an encoder and decoder: `factory:` or `torchscript:`.
        dimensions: latent columns to move; "all" moves each.
        steps: M; the position is known to 1/M of a unit.
        halvings: bisections of the last step.
        axes: "learned" takes centre and unit from the mapper, the mean and spread of its training data; "sampled" takes
            mean and spread of latents drawn evenly from `range`; "range" takes its middle and half its width.
        range: low and high end of the latents, for axes that are not learned.
        draws, draw_seed: how many latents `axes: sampled` draws, and the seed that they follow.
        keeps: whose label a move must keep: the classifier's at the "centre" of the dimension, or its own of the
            "sample"; with the latter a centre that has another label has a tolerance of 0.
        reach: units are multiplied by it: 2 looks twice as far.
        least_explained: a mapper that explains less of the samples' variance than this is refused, for it does not
            reconstruct and cannot judge; looked at on 64 samples spread over the set.
        label: distinguishes two mappers in one fleet: the key becomes ``projection-LABEL/tol``.
        names: what dimensions stand for, by their column: ``{8: thickness}``; for pictures and tables.

    Extra columns: `correct`; `agrees`, the share of dimensions at whose centre the label is the sample's own;
    `censored`, the share of directions in which it never flips; `dev`, mean deviation in latent units; `error`, mean
    squared error of the reconstruction; `non_finite`, `queries`; and for each dimension `d003/down`, `d003/up`, the
    moves in [0, 1], `d003/down_censored`, `d003/up_censored`, and the same in every row `d003/centre`, `d003/unit`.
    """

    version: ClassVar[int] = 2
    needs: ClassVar[Literal["logits", "model"]] = "model"
    pictures: ClassVar[bool] = True

    LATER: ClassVar[tuple[str, ...]] = ("keeps",)

    name: Literal["projection"] = "projection"
    mapper: str = Field(min_length=3)
    dimensions: Annotated[tuple[Index, ...], Field(min_length=1)] | Literal["all"] = "all"
    steps: int = Field(default=20, ge=1, le=10_000)
    halvings: int = Field(default=0, ge=0, le=30)
    axes: Literal["learned", "range", "sampled"] = "learned"
    range: tuple[float, float] = (-3.0, 3.0)
    draws: int = Field(default=1000, ge=2, le=100_000)
    draw_seed: int = Field(default=0, ge=0)
    reach: float = Field(default=1.0, gt=0, le=1000)
    keeps: Literal["centre", "sample"] = "centre"
    least_explained: float = Field(default=LEAST_EXPLAINED, ge=0, le=1)
    label: str = Field(default="", pattern=r"^[a-z0-9.]{0,40}$")
    names: dict[Index, Annotated[str, Field(min_length=1, max_length=60)]] = Field(default_factory=dict)

    @field_validator("dimensions")
    @classmethod
    def _each_once(cls, value: tuple[int, ...] | str) -> tuple[int, ...] | str:
        if len(set(value)) < len(value) and value != "all":
            raise ValueError(f"expected each dimension once, found {value}")
        return value

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, high = self.range
        if not (np.isfinite([low, high]).all() and low < high):
            raise ValueError(f"expected range [low, high] with low < high, found {list(self.range)}")
        return self

    @property
    def most_passes(self) -> float:
        return BACKWARD * self.steps

    def series(self) -> tuple[Series, ...]:
        stem = f"projection-{self.label}" if self.label else "projection"
        title = "Tolerance to attributes (share of the range)"
        return (self.one_series(f"{stem}/tol", title, unit="share of range", label=stem),)

    def columns(self) -> tuple[Column, ...]:
        numbers = ("correct", "agrees", "censored", "dev", "error", "non_finite")
        return *(Column(name) for name in numbers), Column("queries", "count")

    def column(self, name: str) -> Column:
        """Columns that are not listed are those of a latent dimension, whose number only the mapper knows."""
        return next((column for column in self.columns() if column.name == name), Column(name, "latent"))

    def canonical(self) -> str:
        """Without `names`, which no number depends on."""
        return super().canonical() if not self.names else self.model_copy(update={"names": {}}).canonical()

    def sources(self) -> dict[str, str]:
        return {"mapper": self.mapper}

    def content(self) -> str:
        from services.loading.mappers import mapper_fingerprint

        return mapper_fingerprint(self.mapper)

    def scorer(self, context: RunContext) -> Scorer:
        """Load the mapper, look at how it reconstructs the samples, and score with it.

        Raises:
            SourceError: the mapper cannot be opened.
            MeasureError: it does not reconstruct, or lacks what `dimensions` and `axes` ask for.
        """
        from services.loading.mappers import open_mapper

        mapper = open_mapper(self.mapper, device=context.device, allowed_factories=context.allowed_factories)
        images = context.probe()
        self._require_faithful(mapper.reconstruction(images))
        return partial(self._score, mapper, self._axes(mapper, mapper.encode(images).shape[1]))

    def from_model(
        self, network: Network, images: torch.Tensor, labels: torch.Tensor, ids: NDArray[np.int64], *, seed: int
    ) -> Columns:
        """Project one batch, on which the mapper is looked at as well."""
        from services.loading.factories import DEFAULT_FACTORIES

        context = RunContext(str(images.device), DEFAULT_FACTORIES, lambda: images)
        return self.scorer(context)(network, images, labels, ids, seed=seed)

    def picture(self, network: Network, context: RunContext) -> bytes:
        """A traversal from the centre of all latents: `services.storage.traversals`."""
        import torch

        from services.loading.mappers import open_mapper
        from services.measures.latent.traversal import traverse

        mapper = open_mapper(self.mapper, device=context.device, allowed_factories=context.allowed_factories)
        latents = mapper.encode(context.probe()).shape[1]
        everything = self.model_copy(update={"dimensions": "all"})._axes(mapper, latents)
        centre = everything.centre.to(torch.device(context.device))
        axes = self._axes(mapper, latents)
        return traverse(network, mapper, centre, axes, steps=self.steps, halvings=self.halvings).to_bytes()

    def _score(
        self,
        mapper: LoadedMapper,
        axes: Axes,
        network: Network,
        images: torch.Tensor,
        labels: torch.Tensor,
        ids: NDArray[np.int64],
        *,
        seed: int,
    ) -> Columns:
        """Nothing is drawn here: neither `ids` nor `seed` matters."""
        import torch

        from services.loading.mappers import decoded
        from services.measures.attacks.margins import SMALLEST, margins, passes
        from services.measures.latent.boundaries import cached_chunk, project

        latents = passes(mapper.encode, images)
        chunk = 16 * len(images) if images.is_cuda else min(cached_chunk(images[0].numel()), 2 * len(images))
        with torch.no_grad():
            logits = passes(network, images)
        projected = project(
            network,
            mapper.decode,
            latents,
            axes,
            steps=self.steps,
            halvings=self.halvings,
            chunk=max(chunk, SMALLEST),
            own=logits.argmax(dim=1) if self.keeps == "sample" else None,
        )
        with torch.no_grad():
            back = passes(lambda codes: decoded(mapper.decode, codes), latents)
        error = (back.double() - images.double()).square().mean(dim=(1, 2, 3))
        correct = margins(logits, labels) > 0
        return self._columns(projected, axes, *(part.cpu().numpy() for part in (logits.argmax(dim=1), correct, error)))

    def _columns(
        self,
        projected: Projected,
        axes: Axes,
        own: NDArray[np.int64],
        correct: NDArray[np.bool_],
        error: NDArray[np.float64],
    ) -> Columns:
        from services.measures.latent.columns import LatentColumns

        centre, unit = axes.centre.double().cpu().numpy(), axes.unit.double().cpu().numpy()
        columns: Columns = {
            self.series()[0].key: projected.moves.mean(axis=(1, 2)),
            "correct": correct.astype(np.float64),
            "agrees": (projected.start == own[:, None]).mean(axis=1),
            "censored": projected.censored.mean(axis=(1, 2)),
            "dev": (np.abs(projected.moves[:, :, 1] - projected.moves[:, :, 0]) * unit / 2.0).mean(axis=1),
            "error": error,
            "non_finite": projected.non_finite.astype(np.float64),
            "queries": projected.queries + 2.0,
        }
        for d, column in enumerate(axes.dimensions.tolist()):
            of = LatentColumns(column)
            columns[of.centre] = np.full(len(own), centre[d])
            columns[of.unit] = np.full(len(own), unit[d])
            for side, (move, censored) in enumerate(zip(of.moves, of.censored, strict=True)):
                columns[move] = projected.moves[:, d, side]
                columns[censored] = projected.censored[:, d, side].astype(np.float64)
        return columns

    def _axes(self, mapper: LoadedMapper, latents: int) -> Axes:
        """The dimensions to move, with centre and unit.

        Raises:
            MeasureError: a dimension or a name of one that the mapper does not have, or axes that it did not learn.
        """
        import torch

        from services.measures.latent.boundaries import Axes

        which = tuple(range(latents)) if self.dimensions == "all" else self.dimensions
        for field, columns in (("dimensions", which), ("names", self.names)):
            if beyond := [d for d in columns if isinstance(d, int) and d >= latents]:
                expected = f"dimensions below {latents}, the mapper's"
                raise MeasureError(Problem(f"{self.name} ({field})", expected, ", ".join(map(str, beyond))))
        chosen = torch.tensor(which, dtype=torch.int64)
        if self.axes == "range":
            low, high = self.range
            middle, half = torch.tensor((low + high) / 2.0), torch.tensor((high - low) / 2.0)
            return Axes(chosen, middle.repeat(len(which)), self.reach * half.repeat(len(which)))
        if self.axes == "sampled":
            drawn = np.random.default_rng(self.draw_seed).uniform(*self.range, (self.draws, latents))
            centre, unit = (torch.from_numpy(array) for array in (drawn.mean(axis=0), drawn.std(axis=0)))
            return Axes(chosen, centre[chosen], self.reach * unit[chosen])
        learned = mapper.learned()
        if learned is None:
            remedy = "set axes: range or sampled, and range: [low, high], or give the mapper buffers centre and unit"
            raise MeasureError(Problem(f"{self.name} (axes)", "a mapper with centre and unit", "one without", remedy))
        centre, unit = (array.detach().cpu().double() for array in learned)
        if centre.shape != (latents,) or unit.shape != (latents,) or not bool((unit > 0).all()):
            expected = f"centre and unit ({latents},) with unit above 0"
            actual = f"shapes {tuple(centre.shape)} and {tuple(unit.shape)}, least unit {float(unit.min()):.3g}"
            raise MeasureError(Problem(self.mapper, expected, actual))
        return Axes(chosen, centre[chosen], self.reach * unit[chosen])

    def _require_faithful(self, quality: Reconstruction) -> None:
        if quality.explained is not None and quality.explained >= self.least_explained:
            return
        measured = (
            f"{quality.explained:.1%}" if quality.explained is not None else "undefined, as all images are the same"
        )
        actual = f"{measured} (mean squared error {quality.mse:.4g} on {quality.images} samples)"
        expected = f"a mapper that explains at least {self.least_explained:.0%} of the samples' variance"
        remedy = "train it longer, on data like these samples; lower least_explained to judge by it all the same"
        raise MeasureError(Problem(f"{self.name} ({self.mapper})", expected, actual, remedy))
