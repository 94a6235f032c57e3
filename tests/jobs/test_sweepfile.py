"""The sweep file: what it becomes, and every mistake with its line, its value and what is allowed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.sweepfile import load_sweep, overridden, sweep_schema, validate_sweep
from services.errors import ConfigError
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
    ]
    rates = {trial.name: trial.recipe.lr for trial in sweep.trials}
    assert rates["erm-small_cnn-digits-s0"] == 0.04
    assert rates["strong-wide-digits-s0"] == rates["strong-small_cnn-digits-s7"] == 0.02
    recipe = sweep.trials[3].recipe
    assert (recipe.seed, recipe.device, recipe.precision, recipe.mean) == (7, "cpu", "bfloat16", (0.3,))
    assert recipe.attack is not None and recipe.attack.epsilon == 8 / 255
    assert sweep.trials[4].architecture.options() == {"width": 32}
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
        ({"exclude": [{}]}, "at least one of method, architecture, dataset and seed"),
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
        ({"recipe": {"epochs": 10**23}}, "recipe.epochs: expected less than or equal"),
        ({"recipe": {"lr": 1e300}}, "recipe.lr: expected less than or equal"),
        ({"recipe": {"mean": [0.5], "std": [0]}}, "recipe.std[0]: expected greater than 0"),
        ({"recipe": {"averaging": "foo"}}, "recipe.averaging: expected one of 'ema', 'fair-ema'"),
        ({"recipe": {"averaging": [1]}}, "recipe.averaging: expected a mapping of fields to values"),
        ({"architectures": [{"name": "small_cnn", "seed": 4}]}, "expected no seed here"),
        ({"registre": "a"}, "did you mean 'register'?"),
    ],
)
def test_each_mistake_says_what_is_allowed(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        validate_sweep(small(**changes))
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


def test_validation_imports_neither_torch_nor_ray_nor_mlflow(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(GOOD)
    code = (
        "import sys\nfrom jobs.sweepfile import load_sweep, sweep_schema\nload_sweep(sys.argv[1]); sweep_schema()\n"
        "print([name for name in ('torch', 'ray', 'mlflow', 'pandas') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
