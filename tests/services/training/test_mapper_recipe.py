"""Sweep files and checkpoints of 0.1.0 know two fields by other names."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from services.training.mapper_recipe import MapperRecipe

OF_010 = (
    '{"adversarial": 0.1, "batch": 64, "beta": 1.0, "critic_rate": 0.2, "epochs": 20, "holdout": 0.1, "jolt": 0.3, '
    '"lr": 0.001, "pull": 0.05, "reconstruction": 10.0, "regression": 0.2, "seed": 0}'
)


def test_the_identity_of_a_checkpoint_of_010_stands() -> None:
    assert MapperRecipe(noise_std=0.3).canonical() == OF_010


def test_old_names_are_read() -> None:
    assert MapperRecipe.model_validate({"jolt": 0.3, "pull": 1}) == MapperRecipe(noise_std=0.3, latent_penalty=1)


def test_one_field_under_both_names_is_refused() -> None:
    with pytest.raises(ValidationError, match="jolt"):
        MapperRecipe.model_validate({"jolt": 0.3, "noise_std": 0.4})
