from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name, _validate_param_name  # noqa: PLC2701

from tracking.names import MAX_KEY, file_name, group_key, metric_key, series_key, shorten, slug, unique_name

TEXT = st.text(st.characters(codec=None), max_size=80) | st.sampled_from(["..", "a/../b", "/", "//", " ", "-", "a//b"])


@given(TEXT, TEXT, st.integers(0, 99_999), TEXT)
def test_mlflow_takes_every_key(series: str, grouping: str, index: int, name: str) -> None:
    key = metric_key(series_key(series, grouping), "class", group_key(index, name))
    _validate_metric_name(key)
    _validate_param_name(unique_name(name))
    assert len(key) <= MAX_KEY


@given(TEXT, TEXT)
def test_two_texts_never_share_a_name(a: str, b: str) -> None:
    for name in (unique_name, file_name, series_key):
        assert (name(a) == name(b)) == (a == b)
    if a != b:
        assert file_name(a).lower() != file_name(b).lower()


@given(TEXT)
def test_a_file_name_is_one_plain_component(text: str) -> None:
    name = file_name(text)
    assert name.isascii() and "/" not in name and name not in {"", ".", ".."} and len(name) <= 80


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat & dog, 'pet' (small)", "cat_dog_pet_small"),
        ("line\nbreak", "line_break"),
        ("\u202eright to left\u202c", "right_to_left"),
        ("../../etc/passwd", "etc_passwd"),
        ("a//b", "a_b"),
        ("猫", "猫"),
        ("", ""),
        ("x" * 10_000, "x" * 60),
    ],
)
def test_slugs_stay_readable(text: str, expected: str) -> None:
    assert slug(text) == expected


def test_the_index_keeps_classes_apart() -> None:
    keys = [group_key(index, name) for index, name in enumerate(["cat?", "cat!", "cat", "", "\n"])]
    assert keys == ["c000_cat", "c001_cat", "c002_cat", "c003", "c004"]


def test_long_keys_are_cut_and_stay_different(hostile_names: tuple[str, ...]) -> None:
    long = [metric_key("s" * 200, f"{'c' * 100}{end}") for end in "ab"]
    assert long[0] != long[1] and all(len(key) <= MAX_KEY for key in long)
    for index, name in enumerate(hostile_names):
        _validate_metric_name(metric_key("great", "class", group_key(index, name)))


def test_known_series_keep_their_names() -> None:
    assert series_key("great") == "great"
    assert series_key("pgd20/linf-0.03137") == "pgd20/linf-0.03137"
    assert series_key("great", "sex") == "great/by-sex"
    assert series_key("great/by-sex") == "great/by-sex" and series_key("a/../b").startswith("a_.._b-")


@given(TEXT)
def test_labels_are_short_and_visible(text: str) -> None:
    label = shorten(text, 20)
    assert 0 < len(label) <= 20 and label.isprintable()
