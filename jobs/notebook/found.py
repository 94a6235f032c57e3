"""What an audit found, for Python: verdicts, tables as pandas frames, figures that display themselves."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from services.errors import ConfigError, Problem
from services.records import AuditResult, Estimate
from services.registry import did_you_mean
from services.storage import files

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 110
LIMITS = ("value", "low", "high")


@dataclass(frozen=True)
class Found:
    """A finished audit.

    Attributes:
        result: the whole record, as `bundle.json` has it.
        folder: the bundle.
    """

    result: AuditResult
    folder: str

    @property
    def verdict(self) -> str:
        """Of the whole fleet: "pass", "fail", "error" or "undecided"."""
        return self.result.outcome.value

    @property
    def verdicts(self) -> dict[str, str]:
        """Of each model."""
        return {model.spec.name: model.outcome.value for model in self.result.models}

    @property
    def report(self) -> str:
        """Path of the report, one HTML file."""
        return files.join(self.folder, "report.html")

    def df(self) -> pd.DataFrame:
        """One row a model, series, grouping and group, as in the bundle: `n`, `score`, `low`, `high`, `worst` ..."""
        import pandas as pd

        from tracking.bundle import group_table

        return pd.DataFrame([row for model in self.result.models for row in group_table.rows(model)])

    def metrics(self) -> pd.DataFrame:
        """One row a model, series, grouping and metric (wcr, rdi, nrgc ...): `value`, `low`, `high`, `reason`."""
        import pandas as pd

        rows = [
            (model.spec.name, result.series.key, result.grouping, name, *_limits(estimate), estimate.reason)
            for model in self.result.models
            for result in model.series
            for name, estimate in result.metrics.items()
        ]
        return pd.DataFrame(rows, columns=["model", "series", "grouping", "metric", *LIMITS, "reason"])

    def gates(self) -> pd.DataFrame:
        """One row a model and gate: `gate`, `outcome`, `value`, `low`, `high`, `reason`."""
        import pandas as pd

        rows = [
            (model.spec.name, gate.text, gate.outcome.value, *_limits(gate.estimate), gate.reason)
            for model in self.result.models
            for gate in model.gates
        ]
        return pd.DataFrame(rows, columns=["model", "gate", "outcome", *LIMITS, "reason"])

    def samples(self, model: str | None = None) -> pd.DataFrame:
        """The scores of one model, one row a sample; `model` may be left out where there is one.

        Raises:
            ConfigError: no model of that name.
        """
        import pandas as pd

        from tracking.bundle.scores import read_kept_scores

        names = [each.spec.name for each in self.result.models]
        if model is None and len(names) == 1:
            model = names[0]
        if model not in names:
            expected = f"one of {', '.join(names)}"
            raise ConfigError(Problem("model", expected, repr(model), did_you_mean(str(model), names)))
        index = names.index(model)
        return pd.DataFrame(dict(read_kept_scores(self.folder, index, self.result.models[index].spec)))

    @cached_property
    def figures(self) -> Mapping[str, Any]:
        """The charts of the report by name, such as "heatmap clean": Plotly figures, drawn when asked for."""
        return _Figures(self.result)

    def __str__(self) -> str:
        return self._text()

    def __repr__(self) -> str:
        return f"<audit {self.result.audit_id} of {self.result.fleet}: {self.verdict}>"

    def _repr_html_(self) -> str:
        report = html.escape(self.report)
        return f"<pre>{html.escape(self._text())}</pre><div>report: <code>{report}</code></div>"

    def _text(self) -> str:
        from rich.console import Console

        from tracking.report.terminal import verdict_text

        console = Console(width=WIDTH, color_system=None, force_terminal=False, force_jupyter=False, record=True)
        with console.capture() as captured:
            console.print(verdict_text(self.result, WIDTH))
        return captured.get()


def _limits(estimate: Estimate) -> tuple[float | None, ...]:
    return estimate.value, estimate.low, estimate.high


class _Figures(Mapping[str, Any]):
    """Charts by name; each becomes a Plotly figure when it is taken."""

    def __init__(self, result: AuditResult) -> None:
        from tracking.bundle.summary import lenses
        from tracking.figures.save import fleet_charts, model_charts

        several = len(result.models) > 1
        self._charts: dict[str, Any] = {}
        for lens in lenses(result):
            self._charts |= {f"{name} {lens}": chart for name, chart in fleet_charts(result, lens).items()}
        for model in result.models:
            suffix = f" {model.spec.name}" if several else ""
            self._charts |= {
                f"{name}{suffix}": chart for name, chart in model_charts(model, math.prod(result.samples.shape)).items()
            }

    def __getitem__(self, name: str) -> Any:
        import plotly.graph_objects as go

        from tracking.figures.interactive import to_plotly
        from tracking.names import shorten

        if name not in self._charts:
            raise KeyError(f"{name!r}: expected one of {', '.join(self._charts)}")
        chart = self._charts[name]
        figure = go.Figure(to_plotly(chart))
        return figure.update_layout(title={"text": html.escape(shorten(chart.title, 120), quote=False)}, margin_t=60)

    def __iter__(self) -> Iterator[str]:
        return iter(self._charts)

    def __len__(self) -> int:
        return len(self._charts)


def read(folder: str) -> Found:
    """A finished audit from its bundle: a folder or any fsspec URL.

    Raises:
        StorageError: there is no bundle, or it is damaged.
    """
    from tracking.bundle.bundle import read_bundle

    return Found(read_bundle(folder), folder)
