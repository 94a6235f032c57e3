"""Texts that errors and summaries are made of."""

from services.errors import counted


def test_a_number_and_what_it_counts() -> None:
    assert [counted(count, "model") for count in (0, 1, 2, 1200)] == ["0 models", "1 model", "2 models", "1,200 models"]
    assert counted(2, "class", "classes") == "2 classes"
