"""Whether attacks were adequate, from counts of what was observed of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from services.errors import MeasureError
from services.numerics.evidence.adequacy import (
    FEWEST,
    LEVELS,
    PART_RATE,
    RATES,
    Adequacy,
    AttackObservations,
    Sign,
    SignCount,
    adequacy,
    class_undercut,
    most_favour,
    signs,
    undercut,
)

LOOKED = SignCount(Sign.ZERO_GRADIENT, 0, 100)
SOUND = AttackObservations("pgd", ("pgd20/linf-0.1",), gradients=True, counts=(LOOKED,))
BLIND = AttackObservations("square", ("square/linf-0.1",), False, (SignCount(Sign.NOISE, 0, 100),))
UNSEEN = AttackObservations("autoattack", ("autoattack/linf-0.1",), gradients=False)
MASKED = AttackObservations("cw", ("cw20/linf-0.1",), True, (SignCount(Sign.NOISE, 30, 100),))


@pytest.mark.parametrize(
    ("seen", "expected", "word"),
    [
        ((SOUND,), Adequacy.ADEQUATE, ""),
        ((SOUND, BLIND), Adequacy.ADEQUATE, ""),
        ((BLIND,), Adequacy.UNKNOWN, "gradients"),
        ((), Adequacy.UNKNOWN, "no attack"),
        ((MASKED,), Adequacy.INADEQUATE, "random noise in the same ball"),
        ((SOUND, MASKED), Adequacy.INADEQUATE, "cw"),
        ((BLIND, MASKED), Adequacy.INADEQUATE, "autoattack"),
    ],
)
def test_any_sign_speaks_against_and_silence_for_nobody(
    seen: tuple[AttackObservations, ...], expected: Adequacy, word: str
) -> None:
    found = adequacy(seen, gradients=True)
    assert found.adequacy is expected
    assert word in " ".join(found.reasons) and bool(found.reasons) is (expected is not Adequacy.ADEQUATE)


def test_an_attack_of_which_nothing_was_checked_is_unknown() -> None:
    assert adequacy([BLIND]).adequacy is Adequacy.ADEQUATE, "on its own a black box needs no gradients"
    assert adequacy([UNSEEN]).adequacy is Adequacy.UNKNOWN
    empty = AttackObservations("pgd", ("pgd",), True, (SignCount(Sign.NOISE, 0, 0),))
    assert adequacy([empty]).adequacy is Adequacy.UNKNOWN


@pytest.mark.parametrize(("against", "favour"), [(0, 0), (1, 0), (8, 0), (3, 9), (12, 2), (250, 240)])
def test_paired_signs_are_mcnemars_exact_test(against: int, favour: int) -> None:
    """The one-sided p-value; statsmodels' is two-sided."""
    p_value = SignCount(Sign.TRANSFER, against, 1000, favour).p_value
    if against > favour:
        both = mcnemar([[0, favour], [against, 0]], exact=True).pvalue
        assert p_value == pytest.approx(both / 2)
    else:
        assert p_value >= 0.5
    assert SignCount(Sign.TRANSFER, against, 1000, None).p_value == 1.0, "the other side is not known"


@pytest.mark.parametrize("sign", RATES)
def test_other_signs_are_binomial_tests(sign: Sign) -> None:
    for against in (0, 1, 5, 63, 64):
        expected = stats.binomtest(against, 64, RATES[sign], alternative="greater").pvalue
        assert SignCount(sign, against, 64).p_value == pytest.approx(expected)


def test_levels_are_holms_within_four_fifths_of_delta_for_paired_signs() -> None:
    counts = tuple(SignCount(sign, k, 64) for sign, k in ((Sign.NOISE, 9), (Sign.SHORTER, 7), (Sign.TRANSFER, 5)))
    rejected, adjusted, *_ = multipletests([count.p_value / 0.8 for count in counts], 0.05, method="holm")
    found = signs((*counts, SignCount(Sign.OTHER_LOSS, 0, 0)))
    assert [finding.count for finding in found] == [count for count, out in zip(counts, rejected, strict=True) if out]
    assert [finding.p_value for finding in found] == pytest.approx(adjusted[rejected])
    assert len(found) == 3


def test_a_few_points_between_attacks_are_no_sign_however_many_samples_show_them() -> None:
    certain = SignCount(Sign.OTHER_LOSS, 400, 10_000, 50)
    assert not signs([certain]) and not signs([replace(certain, sign=Sign.NOISE)])
    assert signs([SignCount(Sign.OTHER_LOSS, 700, 10_000, 50)])


def test_of_attacks_that_cost_the_same_either_may_be_better_by_what_is_tolerated() -> None:
    """As PGD and CW on `cnn_a_adv4`: 18 of 226 against 5, of all 5,652 samples 321 against 139. Samples
    of an attack within the tolerance make a sign no more often than the level; of one far beyond they do."""
    some, every = SignCount(Sign.OTHER_LOSS, 18, 226, 5), SignCount(Sign.OTHER_LOSS, 321, 5652, 139)
    assert not signs([some]) and not signs([every])
    assert signs([replace(some, sign=Sign.BLACK_BOX)]), "what costs less may not be better"
    assert signs([replace(some, probe=True)])
    cat = SignCount(Sign.OTHER_LOSS, 76, 188, 18, part="class cat", label=3)
    assert signs([cat, *(SignCount(Sign.OTHER_LOSS, 0, 500, 9, part=f"class {k}", label=k) for k in range(9))])
    rng, alarms, seen = np.random.default_rng(0), 0, 0
    for _ in range(2000):
        within, beyond = (rng.multinomial(226, [net + 0.02, 0.02, 0.96 - net]) for net in (0.05, 0.2))
        alarms += bool(signs([SignCount(Sign.OTHER_LOSS, int(within[0]), 226, int(within[1]))]))
        seen += bool(signs([SignCount(Sign.OTHER_LOSS, int(beyond[0]), 226, int(beyond[1]))]))
    assert alarms / 2000 <= 0.05 and seen / 2000 > 0.99


def test_what_cannot_be_a_sign_is_known_before_all_of_the_other_side_is() -> None:
    """No smaller count of the attack's own would make a sign of what is none with one more than the most."""
    for against in range(31):
        most = most_favour(against, 64)
        shown = [bool(signs([SignCount(Sign.NOISE, against, 64, favour)])) for favour in range(64 - against + 1)]
        assert shown == [favour <= most for favour in range(64 - against + 1)]
        beside = [SignCount(sign, 1, 64, 30) for sign in (Sign.SHORTER, Sign.TRANSFER)]
        assert not signs([SignCount(Sign.NOISE, against, 64, most + 1), *beside])
    assert most_favour(4, 64) == -1 and most_favour(64, 64) == 0


def test_sentences_have_counts() -> None:
    count = SignCount(Sign.TRANSFER, 12, 64, 3, probe=True)
    assert count.sentence == (
        "For 12 of 64 correctly classified samples of a probe (18.8%) the attack failed where adversarials made on "
        "other models of the fleet succeeded, and the other way round for 3."
    )


@pytest.mark.parametrize(("against", "counted", "favour"), [(3, 2, 0), (-1, 5, 0), (3, 5, 3), (1, 5, -1)])
def test_counts_that_do_not_add_up(against: int, counted: int, favour: int) -> None:
    with pytest.raises(MeasureError, match="counts that add up"):
        SignCount(Sign.NOISE, against, counted, favour)


def _as_tolerated(rng: np.random.Generator, sign: Sign, counted: int, favour: float, part: str = "") -> SignCount:
    """Pairs that differ as often either way; of two attacks that cost the same more often by all that is tolerated."""
    tolerated = SignCount(sign, 0, counted, part=part)
    against = favour + (tolerated.tolerated if tolerated.alike else 0.0)
    many, few, _ = rng.multinomial(counted, [against, favour, 1 - against - favour])
    return replace(tolerated, against=int(many), favour=int(few))


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_chance_does_not_shout(delta: float) -> None:
    """Sound attacks: pairs differ as far as is tolerated, other signs come at their rates. At most delta of them
    show any sign, in 4,000 simulated audits; without Holm it would be many more."""
    rng, runs, n = np.random.default_rng(0), 4000, 96
    paired = [sign for sign in Sign if sign not in RATES]
    alarms = singles = 0
    for _ in range(runs):
        counts = [_as_tolerated(rng, sign, n, rng.choice([0.01, 0.05, 0.2])) for sign in paired]
        counts += [SignCount(sign, int(rng.binomial(n, rate)), n) for sign, rate in RATES.items()]
        alarms += bool(signs(counts, delta))
        singles += any(count.p_value <= delta for count in counts)
    limit = delta + 3 * np.sqrt(delta * (1 - delta) / runs)
    assert 0 < alarms / runs <= limit < singles / runs


@pytest.mark.slow
@pytest.mark.parametrize(("classes", "runs"), [(2, 2000), (10, 2000), (100, 400), (1000, 100)])
def test_chance_does_not_shout_in_one_class_of_many(classes: int, runs: int) -> None:
    """As above with every sign by class and part as well, the gradient's in two steps: of six samples a class, and of
    48 where a third of the six show it. Every sound class is as bad as a sound class may be."""
    rng, delta = np.random.default_rng(classes), 0.2
    paired = [sign for sign in Sign if sign not in RATES]
    gradient = [Sign.ZERO_GRADIENT, Sign.NON_FINITE, Sign.SATURATED, Sign.UNPREDICTIVE]
    alarms = singles = 0
    for _ in range(runs):
        counts = [SignCount(sign, int(rng.binomial(96, rate)), 96) for sign, rate in RATES.items()]
        for part in (f"class {label}" for label in range(classes)):
            counts += [_as_tolerated(rng, sign, 100, 0.05, part) for sign in paired]
            rates = {sign: PART_RATE if sign is Sign.UNPREDICTIVE else RATES[sign] for sign in gradient}
            few = {sign: int(rng.binomial(6, rate)) for sign, rate in rates.items()}
            again = any(k >= 2 for k in few.values())
            counts += [
                SignCount(sign, k + int(rng.binomial(42, rates[sign])) if again else k, 48 if again else 6, part=part)
                for sign, k in few.items()
            ]
        alarms += bool(signs(counts, delta))
        singles += any(count.p_value <= delta for count in counts)
    limit = delta + 3 * np.sqrt(delta * (1 - delta) / runs)
    assert alarms / runs <= limit < singles / runs
    assert sum(LEVELS.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("classes", [2, 10, 100, 1000])
def test_one_masked_class_of_many_is_seen(classes: int) -> None:
    """A gradient at random predicts nothing for 5 samples of 8; of 48 the test has to see it in spite of Holm."""
    rng, seen, runs = np.random.default_rng(classes), 0, 200
    sound = [SignCount(sign, 0, 48, part=f"class {k}") for k in range(1, classes) for sign in list(RATES)[:4]]
    for _ in range(runs):
        masked = SignCount(Sign.UNPREDICTIVE, int(rng.binomial(48, 0.625)), 48, part="class 0", label=0)
        seen += bool(signs([*sound, masked]))
    assert seen / runs > 0.7


def test_what_fell_in_single_classes() -> None:
    counts = (
        SignCount(Sign.NOISE, 4, 96, None),
        SignCount(Sign.NOISE, 3, 10, None, part="class 2", label=2),
        SignCount(Sign.NOISE, 1, 1, None, part="class 7", label=7),
        SignCount(Sign.TRANSFER, 4, 10, 2, part="class 2", label=2),
        SignCount(Sign.UNPREDICTIVE, 9, 9, part="class 5", label=5),
    )
    seen = [AttackObservations("pgd", ("pgd",), True, counts)]
    assert class_undercut(seen) == {2: 0.4, 7: 1 / FEWEST}, "one fallen of one looked at is no whole class"
    worst = undercut(seen)
    assert worst is not None and worst.part == ""


def test_the_surest_parts_are_named_and_none_where_a_sign_shows_everywhere() -> None:
    parts = [SignCount(Sign.UNPREDICTIVE, 30 + k, 48, part=f"class {k}", label=k) for k in range(9)]
    whole = SignCount(Sign.UNPREDICTIVE, 10, 96)
    found = signs([whole, *parts])
    assert [finding.count.label for finding in found] == [8, 7, 6, 5, 4]
    everywhere = SignCount(Sign.UNPREDICTIVE, 90, 96)
    assert [finding.count for finding in signs([everywhere, *parts])] == [everywhere]


def test_sentences_name_the_part() -> None:
    count = SignCount(Sign.UNPREDICTIVE, 30, 32, probe=True, part="channel 1")
    assert count.sentence.startswith(
        "In channel 1, for 30 of 32 correctly classified samples of a probe (93.8%) a step"
    )


@pytest.mark.parametrize("gap", [0.3, 0.5])
def test_a_masked_attack_is_seen(gap: float) -> None:
    """Of 96 samples the weaker attack breaks a share that the attack leaves, among twelve signs that are sound."""
    rng, seen = np.random.default_rng(1), 0
    others = [SignCount(sign, 0, 96) for sign in Sign if sign is not Sign.TRANSFER]
    for _ in range(500):
        against, favour, _ = rng.multinomial(96, [gap, 0.02, 0.98 - gap])
        seen += bool(signs([*others, SignCount(Sign.TRANSFER, int(against), 96, int(favour))]))
    assert seen / 500 > 0.99
