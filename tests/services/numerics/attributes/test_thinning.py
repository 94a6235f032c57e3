"""Skeletons and their lengths against Zhang and Suen's rules written pixel by pixel."""

from __future__ import annotations

import numpy as np
import pytest

from services.numerics.attributes.thinning import deletable, lengths, neighbour_codes, thinned

AROUND = [(-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)]


def deletes(p: list[int], step: int) -> bool:
    """Zhang & Suen's conditions (a) to (d) on the neighbours p2 .. p9, clockwise from above."""
    p2, _, p4, _, p6, _, p8, _ = p
    runs = sum(a == 0 and b == 1 for a, b in zip(p, [*p[1:], p[0]], strict=True))
    triples = (p2 * p4 * p6, p4 * p6 * p8) if step == 0 else (p2 * p4 * p8, p2 * p6 * p8)
    return 2 <= sum(p) <= 6 and runs == 1 and triples == (0, 0)


def naive(image: np.ndarray) -> np.ndarray:
    now = np.pad(image, 1).astype(int)
    while True:
        before = now.copy()
        for step in (0, 1):
            gone = [
                (r, c)
                for r, c in zip(*np.nonzero(now), strict=True)
                if deletes([int(now[r + dr, c + dc]) for dr, dc in AROUND], step)
            ]
            for r, c in gone:
                now[r, c] = 0
        if (now == before).all():
            return now[1:-1, 1:-1].astype(bool)


@pytest.mark.parametrize("step", [0, 1])
def test_the_table_of_deletions_is_the_rule_for_each_of_256_neighbourhoods(step: int) -> None:
    result = deletable(step)
    assert result.shape == (256,) and result.dtype == np.bool_
    assert result.tolist() == [deletes([code >> bit & 1 for bit in range(8)], step) for code in range(256)]


def test_codes_are_the_neighbours_clockwise_from_above() -> None:
    image = np.random.default_rng(0).random((2, 5, 6)) < 0.5
    result = neighbour_codes(image)
    assert result.dtype == np.uint8 and result.shape == (2, 3, 4)
    for n, r, c in np.ndindex(result.shape):
        bits = [int(image[n, r + 1 + dr, c + 1 + dc]) << bit for bit, (dr, dc) in enumerate(AROUND)]
        assert result[n, r, c] == sum(bits)


def test_skeletons_are_those_of_a_loop_over_pixels() -> None:
    rng = np.random.default_rng(1)
    images = np.kron(rng.random((5, 5, 6)) < 0.6, np.ones((1, 3, 2))).astype(bool)
    images[3] = False
    images[4] = True
    result = thinned(images)
    assert result.dtype == np.bool_
    for image, skeleton in zip(images, result, strict=True):
        np.testing.assert_array_equal(skeleton, naive(image))
    assert thinned(images[:0]).shape == (0, 15, 12)


@pytest.mark.parametrize(
    ("rows", "length"),
    [
        (["###"], 2.0),
        (["#", "#", "#"], 2.0),
        (["#..", ".#.", "..#"], 2 * 2**0.5),
        (["..#", ".#.", "#.."], 2 * 2**0.5),
        (["##", ".#"], 2.0),
        (["#.", "##"], 2.0),
        (["##", "#."], 2.0),
        ([".#", "##"], 2.0),
        (["##", "##"], 4.0),
        (["#.#"], 0.0),
        (["#"], 0.0),
        (["##.", "..#"], 1.0 + 2**0.5),
        (["#..", "##.", "..#"], 2.0 + 2**0.5),
    ],
)
def test_lengths_by_hand(rows: list[str], length: float) -> None:
    image = np.array([[pixel == "#" for pixel in row] for row in rows])
    result = lengths(np.stack([image, np.zeros_like(image)]))
    assert result.tolist() == [pytest.approx(length), 0.0] and result.dtype == np.float64


def test_lengths_are_those_of_a_loop_over_pixels() -> None:
    images = np.random.default_rng(2).random((5, 6, 7)) < 0.45
    for image, each in zip(images, lengths(images), strict=True):
        expected = 0.0
        lit = {(int(r), int(c)) for r, c in zip(*np.nonzero(image), strict=True)}
        for r, c in lit:
            expected += ((r, c + 1) in lit) + ((r + 1, c) in lit)
            for side in (-1, 1):
                corner = {(r + 1, c), (r, c + side)}
                expected += 2**0.5 * ((r + 1, c + side) in lit and not corner & lit)
        assert each == pytest.approx(expected)
