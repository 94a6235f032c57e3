"""The records that pass between stages, workers, the driver, the bundle and MLflow.

Frozen dataclasses only, free of torch, ray and mlflow. What is written to disk carries `SCHEMA_VERSION`. An undefined
number is `None` with a reason beside it; NaN and infinity never enter a record.
"""

from __future__ import annotations

from services.records.attacks import Ascent, AttackResult, SignResult
from services.records.confusions import NO_CLASS, ConfusedPair, ConfusionResult
from services.records.estimates import Estimate, GapResult, GroupScore, RefutedResult
from services.records.fairness import (
    FairnessResult,
    LatentDimension,
    ProjectedGroup,
    ProjectionResult,
    TaskGaps,
)
from services.records.intake import Intake
from services.records.results import (
    WORST_FIRST,
    AuditResult,
    CalibrationResult,
    GateResult,
    ModelResult,
    Outcome,
    SampleFacts,
    SeriesResult,
    Threshold,
)
from services.records.schema import AUDIT_VERSION, SCHEMA_VERSION, digest_of
from services.records.series import ATTACKED, L2_DISTANCE, LINF_DISTANCE, PREDICTED, Column, Evidence, Series
from services.records.slices import SliceResult
from services.records.specs import InputContract, ModelSpec, Outputs, Overrulable, SampleSpec, ThreatModel
from services.records.tasks import Receipt, ShardTask, TaskFailure

__all__ = [
    "ATTACKED",
    "AUDIT_VERSION",
    "L2_DISTANCE",
    "LINF_DISTANCE",
    "NO_CLASS",
    "PREDICTED",
    "SCHEMA_VERSION",
    "WORST_FIRST",
    "Ascent",
    "AttackResult",
    "AuditResult",
    "CalibrationResult",
    "Column",
    "ConfusedPair",
    "ConfusionResult",
    "Estimate",
    "Evidence",
    "FairnessResult",
    "GapResult",
    "GateResult",
    "GroupScore",
    "InputContract",
    "Intake",
    "LatentDimension",
    "ModelResult",
    "ModelSpec",
    "Outcome",
    "Outputs",
    "Overrulable",
    "ProjectedGroup",
    "ProjectionResult",
    "Receipt",
    "RefutedResult",
    "SampleFacts",
    "SampleSpec",
    "Series",
    "SeriesResult",
    "ShardTask",
    "SignResult",
    "SliceResult",
    "TaskFailure",
    "TaskGaps",
    "ThreatModel",
    "Threshold",
    "digest_of",
]
