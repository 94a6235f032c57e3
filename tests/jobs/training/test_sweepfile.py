"""The sweep file: what it becomes, and every mistake with its line, its value and what is allowed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.training.sweepfile import load_sweep, overridden, sweep_schema, validate_sweep
from services.errors import ConfigError
from services.training.mapper_recipe import MapperRecipe
from services.training.methods import METHODS
from services.training.recipe import Recipe

GOOD = """
sweep: digits
methods:
  - erm
  - {name: pgd, label: strong, budget: {epsilon: "8/255", step: "2/255"}, recipe: {lr: 0.02}}
architectures:
  - small_cnn
  - {name: small_cnn, label: wide, width: 32, recipe: {lr: 0.03}}
datasets:
  - {name: digits, per_class: 20, recipe: {mean: [0.3], std: [0.3], lr: 0.04}}
seeds: [0, 7]
recipe: {epochs: 3, lr: 0.05, attack: {epsilon: "8/255"}}
exclude:
  - {method: erm, architecture: wide}
  - {seed: 7, architecture: wide}
  - {mapper: vae, seed: 7}
mappers:
  - {kind: vae}
resources: {runner: local, precision: bfloat16}
"""


def faults(tmp_path: Path, text: str) -> str:
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_sweep(path)
    return "\n".join(str(problem).replace(str(path), "sweep.yaml") for problem in error.value.problems)


def small(**changes: Any) -> dict[str, Any]:
    base = {"sweep": "s", "methods": ["erm"], "architectures": ["small_cnn"], "datasets": ["digits"]}
    return {**base, **changes}


def test_a_good_file_becomes_its_trials(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(GOOD)
    sweep = load_sweep(path)
    assert [trial.name for trial in sweep.trials] == [
        "erm-small_cnn-digits-s0",
        "erm-small_cnn-digits-s7",
        "strong-small_cnn-digits-s0",
        "strong-small_cnn-digits-s7",
        "strong-wide-digits-s0",
        "vae-digits-s0",
    ]
    rates = {trial.name: trial.recipe.lr for trial in sweep.trials}
    assert rates["erm-small_cnn-digits-s0"] == 0.04
    assert rates["strong-wide-digits-s0"] == rates["strong-small_cnn-digits-s7"] == 0.02
    recipe = sweep.networks[3].recipe
    assert (recipe.seed, recipe.device, recipe.precision, recipe.mean) == (7, "cpu", "bfloat16", (0.3,))
    assert recipe.attack is not None and recipe.attack.epsilon == 8 / 255
    assert sweep.networks[4].architecture.options() == {"width": 32}
    assert sweep.trials[4].tags == {
        "method": "strong",
        "architecture": "wide",
        "dataset": "digits",
        "seed": "0",
        "trial": "strong-wide-digits-s0",
    }


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("  - erm\n", "  - ermm\n").replace("lr: 0.02", "lrr: 0.02, seed: 3")
    text = text.replace("per_class: 20", "holdout: 1.5").replace("epochs: 3, lr", "epochs: 0, lr")
    assert faults(tmp_path, text).splitlines() == [
        "sweep.yaml:10 datasets[0].holdout: expected less than 1, found 1.5",
        "sweep.yaml:12 recipe.epochs: expected greater than or equal to 1, found 0",
        "sweep.yaml:4 methods[0]: expected a known training method, found 'ermm'; did you mean 'erm'?",
        "sweep.yaml:5 methods[1].recipe.seed: expected it under seeds, found 3",
        "sweep.yaml:5 methods[1].recipe.lrr: expected no such field, found 'lrr'; did you mean 'lr'?",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ["erm", "erm"]}, "2 called 'erm'; give them a label each"),
        ({"methods": [{"name": "erm", "label": "a b"}]}, "methods[0].label: expected text of the form"),
        ({"methods": [{"budget": 3}]}, "a training method's name, or a mapping with name"),
        ({"methods": [{"name": "pgd", "budget": {"epsilon": "8/0"}}]}, "methods[0].budget.epsilon"),
        ({"architectures": ["resnet99"]}, "expected a known architecture, found 'resnet99'"),
        ({"architectures": [{"name": "cnn4", "width": [1]}]}, "(width is none)"),
        ({"datasets": ["mnist", {"name": "mnits"}]}, "found 'mnits'; did you mean 'mnist'?"),
        ({"seeds": [1, 1]}, "seeds: expected each seed once"),
        ({"seeds": []}, "seeds: expected at least 1 in the list"),
        ({"exclude": [{}]}, "at least one of method, architecture, mapper, dataset and seed"),
        ({"exclude": [{"method": "emr"}]}, "exclude[0].method: expected a method of this sweep, found 'emr'"),
        ({"exclude": [{"method": "erm"}]}, "expected 1 to 10,000 trials, found 0"),
        ({"recipe": {"device": "cuda"}}, "recipe.device: expected it under resources.gpus"),
        ({"recipe": {"holdout": 0.1}}, "recipe.holdout: expected it under the data set's holdout"),
        ({"recipe": {"nesterov": "perhaps"}}, "recipe.nesterov"),
        ({"resources": {"runner": "local", "workers": 2}}, "runner: ray where workers is above 1"),
        ({"resources": {"gpus": 0.5, "workers": 2}}, "workers cannot share a GPU"),
        ({"resources": {"trials": 0}}, "resources.trials: expected auto or 1..1024"),
        ({"register": "{model}"}, "register: expected only {sweep}, {trial}"),
        ({"register": "a/b"}, "register: expected a name without / and :"),
        ({"tracking": {"uri": "http://me:secret@host"}}, "a password in a tracking URI"),
        ({"sweep": "a b"}, "sweep: expected text of the form"),
        ({"generalisation": {"limit": 0}}, "generalisation.limit"),
        ({"seeds": [True]}, "seeds: expected another value than true or false"),
        ({"methods": [{"name": "trades", "beta": True}]}, "methods[0].beta: expected another value than true or false"),
        ({"methods": [{"name": "pgd", "budget": {"steps": 10**13}}]}, "budget.steps: expected less than or equal"),
        ({"recipe": {"epochs": 10**13}}, "recipe.epochs: expected less than or equal"),
        ({"recipe": {"lr": 1e300}}, "recipe.lr: expected less than or equal"),
        ({"recipe": {"mean": [0.5], "std": [0]}}, "recipe.std[0]: expected greater than 0"),
        ({"recipe": {"averaging": "foo"}}, "recipe.averaging: expected one of 'ema', 'fair-ema', 'step-ema', 'swa'"),
        ({"recipe": {"averaging": [1]}}, "recipe.averaging: expected a mapping of fields to values"),
        ({"architectures": [{"name": "small_cnn", "seed": 4}]}, "expected no seed here"),
        ({"registre": "a"}, "did you mean 'register'?"),
    ],
)
def test_each_mistake_says_what_is_allowed(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        validate_sweep(small(**changes))
    assert message in str(error.value)


VAE: dict[str, Any] = {"kind": "vae"}
GAN: dict[str, Any] = {"kind": "conditional_gan", "conditions": ["class", "slant"]}


def test_mappers_become_trials_beside_networks_or_alone() -> None:
    mappers = [VAE, {**GAN, "label": "gan", "recipe": {"epochs": 7, "lr": 0.002}}]
    alone = validate_sweep({"sweep": "m", "datasets": ["digits"], "mappers": mappers, "seeds": [0, 4]})
    assert [trial.name for trial in alone.trials] == [
        "vae-digits-s0",
        "vae-digits-s4",
        "gan-digits-s0",
        "gan-digits-s4",
    ]
    last = alone.mappers[-1]
    assert (last.recipe.seed, last.recipe.epochs, last.recipe.lr, last.recipe.device) == (4, 7, 0.002, "cpu")
    assert last.tags == {"mapper": "gan", "dataset": "digits", "seed": "4", "trial": "gan-digits-s4"}
    rules = [{"mapper": "gan"}, {"method": "erm", "seed": 4}]
    both = validate_sweep(small(mappers=mappers, seeds=[0, 4], exclude=rules))
    assert [trial.name for trial in both.trials] == ["erm-small_cnn-digits-s0", "vae-digits-s0", "vae-digits-s4"]
    assert [trial.name for trial in both.networks] == ["erm-small_cnn-digits-s0"]


def test_all_mistakes_of_mappers_are_told_at_once() -> None:
    mappers = [
        {**GAN, "conditions": ["class", "thicknes"]},
        {**VAE, "conditions": ["slant"]},
        {"kind": "conditional_gan"},
        {**VAE, "factors": ["class"]},
        {**VAE, "recipe": {"seed": 3, "epoch": 5, "lr": 0}},
        {**GAN, "conditions": ["slant", "slant"]},
        {"kind": "flow"},
        {**VAE, "latents": 1},
    ]
    with pytest.raises(ConfigError) as error:
        validate_sweep({"sweep": "m", "datasets": ["digits"], "mappers": mappers, "resources": {"workers": 2}})
    text = str(error.value)
    for part in (
        "mappers[0].conditions[1]: expected class, length, slant, thickness, width, brightness, colour or contrast; "
        "did you mean 'thickness'?, found \"thicknes\"",
        "mappers[1]: expected no conditions for a vae; name attributes under factors",
        "mappers[2]: expected conditions for a conditional_gan",
        "mappers[3].factors[0]: expected length, slant",
        "mappers[4].recipe.seed: expected it under seeds, found 3",
        "mappers[4].recipe.epoch: expected no such field, found 'epoch'; did you mean 'epochs'?",
        "mappers[4].recipe.lr: expected greater than 0, found 0",
        "mappers[5].conditions: expected each attribute once",
        "mappers[6].kind: expected 'vae' or 'conditional_gan', found 'flow'",
        "mappers[7].latents: expected greater than or equal to 2",
        "resources.workers: expected 1 where there are mappers, found 2; train mappers in a sweep of their own",
    ):
        assert part in text, part


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": []}, "methods: expected this field, found nothing; add it"),
        ({"architectures": None, "mappers": [VAE]}, "architectures: expected this field, found nothing; add it"),
        ({"methods": None, "architectures": None}, "methods: expected this field, found nothing; add it, or mappers"),
        ({"mappers": [VAE, VAE]}, "2 called 'vae'; give them a label each"),
        ({"mappers": [VAE], "exclude": [{"mapper": "gan"}]}, "exclude[0].mapper: expected a mapper of this sweep"),
        ({"mappers": [{**VAE, "label": "erm-small_cnn"}]}, "several called erm-small_cnn-digits-s0"),
    ],
)
def test_a_sweep_lacks_nothing_and_names_nothing_twice(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        validate_sweep({key: value for key, value in small(**changes).items() if value is not None})
    assert message in str(error.value)


def test_not_a_sweep(tmp_path: Path) -> None:
    assert faults(
        tmp_path, ""
    ) == "sweep.yaml: expected a mapping with sweep, methods, architectures and datasets, " + ("found an empty file")
    assert "a mapping with sweep, methods" in faults(tmp_path, "- erm")
    assert faults(tmp_path, "sweep: a\nsweep: b\n") == (
        "sweep.yaml:2 sweep: expected each key once, found 'sweep' again (first on line 1)"
    )


def test_options_of_the_command_line_go_over_the_file() -> None:
    sweep = validate_sweep(small(recipe={"lr": 0.2}, register="{method}"))
    changed = overridden(sweep, storage="elsewhere", runner="local", track=False)
    assert changed.config.storage == "elsewhere"
    assert (changed.config.resources.runner, changed.config.tracking.enabled) == ("local", False)
    assert changed.config.register_as == "{method}"
    assert changed.trials[0].recipe == sweep.trials[0].recipe
    with pytest.raises(ConfigError, match=r"command line resources\.runner"):
        overridden(sweep, runner="rey")


def test_the_schema_knows_every_method_and_what_recipes_leave_elsewhere() -> None:
    schema = sweep_schema()
    names = [option["properties"]["name"]["const"] for option in schema["properties"]["methods"]["items"]["anyOf"][1:]]
    assert names == METHODS.names()
    recipe = schema["$defs"]["RecipeConfig"]["properties"]
    assert set(Recipe.model_fields) - set(recipe) == {"seed", "device", "precision", "channels_last", "holdout"}
    assert "register" in schema["properties"]
    mapper = schema["$defs"]["MapperRecipeConfig"]["properties"]
    assert set(MapperRecipe.model_fields) - set(mapper) == {"seed", "device"}


def test_validation_imports_neither_torch_nor_ray_nor_mlflow(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(GOOD)
    code = (
        "import sys\nfrom jobs.training.sweepfile import load_sweep, sweep_schema\n"
        "load_sweep(sys.argv[1]); sweep_schema()\n"
        "print([name for name in ('torch', 'ray', 'mlflow', 'pandas') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("place", ["recipe", "mappers"])
def test_an_unknown_field_of_a_recipe_is_answered_with_fields_that_a_sweep_takes(place: str) -> None:
    misspelt = {"epochz": 3}
    with pytest.raises(ConfigError) as caught:
        validate_sweep(
            small(recipe=misspelt) if place == "recipe" else small(mappers=[{"kind": "gan", "recipe": misspelt}])
        )
    (told,) = [str(problem) for problem in caught.value.problems if "epochz" in str(problem)]
    assert "epochs" in told and not re.search(r"\b(seed|device|precision|channels_last|holdout)\b", told), told


def test_with_a_held_out_split_the_best_robust_epoch_is_kept_unless_the_file_says_otherwise() -> None:
    """The last one was, robust overfitting and all."""

    def selected(holdout: float, **recipe: Any) -> dict[str, str]:
        methods = ["erm", "pgd", {"name": "weighted", "base": "erm"}, {"name": "trades", "recipe": {"select": "last"}}]
        data = {
            "sweep": "s",
            "methods": methods,
            "architectures": ["small_cnn"],
            "datasets": [{"name": "digits", "holdout": holdout}],
            "recipe": recipe,
        }
        return {trial.method.label: trial.recipe.select for trial in validate_sweep(data).networks}

    assert set(selected(0.0).values()) == {"last"}
    assert selected(0.1) == {"erm": "clean", "pgd": "robust", "weighted": "clean", "trades": "last"}
    assert selected(0.1, select="worst-class")["pgd"] == "worst-class"
