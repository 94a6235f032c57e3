"""Numbers and texts of callers cost nothing before they are refused: bounded time and memory, whatever they say."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.api.bodies import fleet_data
from jobs.api.hooks import event_of
from jobs.fleetfile.followups import NotifyConfig, PromoteConfig
from jobs.fleetfile.reading import validate_fleet
from jobs.schedules.cron import Cron
from jobs.training.sweepfile import validate_sweep
from jobs.upkeep.prune_cli import parsed_size
from services import limits
from services.errors import ClasswiseError
from services.loading.uris import extent, parse_uri, scalar, whole
from services.measures.catalogue import MEASURES
from services.measures.parts.threats import read_radius

SECONDS = 5.0
"""Of one request of at most 256 KiB on a busy machine; each fault of this kind took minutes."""
BYTES = 200 << 20
FLEET: dict[str, Any] = {
    "fleet": "f",
    "models": [{"name": "m", "uri": "factory:a:b"}],
    "samples": {"uri": "sklearn:digits"},
    "gates": [{"measure": "clean", "metric": "aggregate", "at_least": 0.5}],
}
SWEEP: dict[str, Any] = {"sweep": "s", "methods": ["erm"], "architectures": ["small_cnn"], "datasets": ["digits"]}
HUGE = [
    "1e7000000",
    "1e400",
    "-1e400",
    "9" * 5000,
    "9" * 200_000,
    "1/" + "9" * 4000,
    "1e999/1e-999",
    "0." + "0" * 100_000 + "1",
    "1/0",
    "1_0" * 1000,
    "²",
    "1" * 60 + "/1e-300",
    10**400,
    10**4000,
    2**63,
    1e308,
    5e-324,
    float("nan"),
    float("inf"),
    -1,
    True,
    None,
    [],
    {},
    [[[[]]]],
    "x" * 100_000,
    ["1e7000000"],
    list(range(50_000)),
    ["x"] * 50_000,
    {str(n): n for n in range(50_000)},
    [{}] * 20_000,
]


@contextmanager
def bounded() -> Iterator[None]:
    """The block ends in time and without much memory."""
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.process_time()
    yield
    seconds, after = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF)
    assert seconds < SECONDS, f"{seconds:.1f} s"
    assert (after.ru_maxrss - before.ru_maxrss) << 10 < BYTES, "the process grew"


def refused_or_read(read: Callable[[], object]) -> None:
    """It is in order or refused in classwise's own words, and quickly."""
    with bounded():
        try:
            read()
        except ClasswiseError as error:
            assert len(str(error)) < 1 << 20


@pytest.mark.parametrize("text", [item for item in HUGE if isinstance(item, str)])
def test_numbers_as_text_are_bounded_before_they_are_computed_with(text: str) -> None:
    for read in (read_radius, limits.number, limits.fraction, limits.whole, whole, extent, scalar, parsed_size, Cron):
        began = time.process_time()
        try:
            value = read(text)
        except (ValueError, ClasswiseError):
            value = None
        assert time.process_time() - began < 0.5
        if isinstance(value, int | float):
            assert abs(value) < 2**63 or read is limits.number


def test_numbers_that_people_write_are_read_as_before() -> None:
    assert read_radius("8/255") == 8 / 255 and read_radius(" 8 / 255 ") == 8 / 255
    assert limits.fraction("0.5/255") == 0.5 / 255 and limits.number("-.5e-3") == -0.0005 and limits.number("3.") == 3
    assert (whole("42"), extent("3x32x32"), scalar("1e-3"), scalar("7"), scalar("true"), scalar("x")) == (
        42,
        (3, 32, 32),
        0.001,
        7,
        True,
        "x",
    )
    assert scalar("null") is None and scalar("1e400") == "1e400"


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_fraction_is_the_nearest_float_of_its_quotient(above: int, below: int) -> None:
    assert limits.fraction(f"{above}/{below}") == above / below


@given(st.text(max_size=80) | st.from_regex(r"[0-9.eE+/_-]{1,80}", fullmatch=True))
def test_any_text_is_a_finite_number_or_a_value_error(text: str) -> None:
    for read in (limits.number, limits.fraction):
        with suppress(ValueError):
            assert abs(read(text)) < float("inf")


def places(data: Any) -> Iterator[tuple[Any, ...]]:
    """All paths of plain data."""
    yield ()
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from ((key, *path) for path in places(value))


def put(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a path."""
    if not path:
        return value
    if isinstance(data, list):
        return [put(item, path[1:], value) if index == path[0] else item for index, item in enumerate(data)]
    return {**data, path[0]: put(data.get(path[0], {}), path[1:], value)}


def _fleets() -> st.SearchStrategy[Any]:
    fields = MEASURES.names()
    everything = {
        **FLEET,
        "input": {"mean": [0.5], "std": [0.5], "size": [32, 32], "range": [0, 1], "channels": 3},
        "temperature": {"policy": "fixed", "value": 1, "low": 0.1, "high": 1, "step": 0.1, "fine_step": 0.01},
        "intervals": {"delta": 0.05},
        "resources": {"workers": 1, "batch": 1, "shard": 1, "cpus": 1, "gpus": 0, "wait_seconds": 1, "deadline": 60},
        "groups": ["sex"],
        "notify": [{"url": "https://example.org", "when": ["fail"]}],
        "promote": {"alias": "x"},
        "fp_lambda": 0.5,
        "seed": 0,
        "measures": [{"name": name, **_filled(name)} for name in fields if name != "projection"],
    }
    everything["models"] = [
        {
            "name": "m",
            "uri": "factory:a:b",
            "classes": ["a", "b"],
            "threat_model": {"norm": "L2", "epsilon": 1},
            "tags": {"a": "b"},
            "output": 0,
            "clean_accuracy": 0.5,
        }
    ]
    return st.tuples(st.just(everything), st.sampled_from(list(places(everything))), st.sampled_from(HUGE))


def _filled(name: str) -> dict[str, Any]:
    """Every parameter of a measure, so that each is a place to put something else."""
    fields = MEASURES.get(name).model_fields
    return {key: field.get_default(call_default_factory=True) for key, field in fields.items() if key != "name"}


def _plain(data: Any) -> Any:
    return [_plain(item) for item in data] if isinstance(data, tuple | list) else data


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(_fleets())
def test_no_value_in_any_place_of_a_fleet_costs_time_or_memory(case: tuple[Any, tuple[Any, ...], Any]) -> None:
    data, path, value = case
    refused_or_read(lambda: validate_fleet(put(data, path, value)))


@pytest.mark.parametrize("value", HUGE, ids=lambda value: repr(value)[:20])
def test_no_epsilon_draw_or_name_costs_time_or_memory(value: Any) -> None:
    for measure in (
        {"name": "pgd", "epsilons": value},
        {"name": "pgd", "epsilons": [value]},
        {"name": "pr", "draws": value},
        {"name": "pr", "radii": [value]},
        {"name": "probacc", "rho": value},
        {"name": "radius", "draws": value},
        {"name": "rare", "particles": value},
        value,
    ):
        refused_or_read(lambda measure=measure: validate_fleet({**FLEET, "measures": [measure]}))  # type: ignore[misc]
    refused_or_read(lambda: validate_fleet({**FLEET, "measures": value}))
    refused_or_read(lambda: validate_fleet({**FLEET, "models": value}))
    refused_or_read(lambda: validate_fleet({**FLEET, "gates": value}))


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(
        list(
            places(
                {
                    **SWEEP,
                    "recipe": {"epochs": 1, "lr": 1},
                    "seeds": [0],
                    "exclude": [{"seed": 0}],
                    "mappers": [{"kind": "vae", "latents": 2, "recipe": {"epochs": 1}}],
                    "resources": {"workers": 1},
                }
            )
        )
    ),
    st.sampled_from(HUGE),
)
def test_no_value_in_any_place_of_a_sweep_costs_time_or_memory(path: tuple[Any, ...], value: Any) -> None:
    refused_or_read(lambda: validate_sweep(put(SWEEP, path, value)))


def test_a_sweep_of_a_hundred_thousand_million_trials_is_refused_before_it_is_made() -> None:
    many = [{"name": "erm", "label": f"m{n}"} for n in range(300)]
    nets = [{"name": "small_cnn", "label": f"a{n}"} for n in range(300)]
    with bounded(), pytest.raises(ClasswiseError, match="combinations"):
        validate_sweep({**SWEEP, "methods": many, "architectures": nets, "seeds": list(range(1000))})


ALIASES = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{here}: &{here} [{','.join([f'*{before}'] * 9)}]\n" for before, here in zip("abcdefgh", "bcdefghi", strict=True)
)
DUPLICATES = "{" + ",".join(f'"k{n}":0' for n in range(20_000)) + ',"k19999":1}'
BODIES = [
    ("application/json", b"[" * 200_000),
    ("application/json", b'{"a":' * 40_000),
    ("application/json", DUPLICATES.encode()),
    ("application/json", b'{"fleet":' + b"9" * 200_000 + b"}"),
    ("application/json", b'{"fleet":1e' + b"9" * 200_000 + b"}"),
    ("application/yaml", b"[" * 200_000),
    ("application/yaml", b"- " * 100_000),
    ("application/yaml", ALIASES.encode()),
    ("application/yaml", b"fleet: " + b"9" * 200_000),
    ("application/yaml", b"fleet: " + b":".join([b"59"] * 60_000)),
    ("application/yaml", b"a: &a {b: *a}"),
    ("application/yaml", b"? [1, 2]\n: 3"),
]


@pytest.mark.parametrize(("kind", "body"), BODIES, ids=range(len(BODIES)))
def test_no_body_costs_time_or_memory(kind: str, body: bytes) -> None:
    refused_or_read(lambda: validate_fleet(fleet_data(body, kind)))
    refused_or_read(lambda: event_of(body))


@pytest.mark.parametrize("value", HUGE, ids=lambda value: repr(value)[:20])
def test_no_value_of_a_hook_or_a_url_costs_time_or_memory(value: Any) -> None:
    data = {"entity": "model_version", "action": "created", "data": {"name": value, "version": value}}
    refused_or_read(lambda: event_of(json.dumps(data).encode()))
    refused_or_read(lambda: event_of(json.dumps({**data, "entity": value}).encode()))
    for text in (f"npz:x?scale={value}", f"factory:a:b?{value}=1", f"x:{value}", str(value)):
        refused_or_read(lambda text=text: parse_uri(text).options(scale=whole))  # type: ignore[misc]
    for tree in (NotifyConfig, PromoteConfig):
        for name in tree.model_fields:
            with bounded(), pytest.raises(ValueError):
                tree.model_validate({name: value, "unknown": value})
