"""Rights and fleets of a caller."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.web.access import USUAL, Caller, Right, unknown_audit
from services.errors import NotAllowed, UnknownAudit

RIGHTS = st.lists(st.sampled_from(list(Right)), unique=True).map(tuple)
NAMES = st.text("abc-", min_size=1, max_size=6)
DIGEST = "0123456789abcdef"


@given(RIGHTS, st.sampled_from(list(Right)))
def test_a_right_is_granted_or_comes_with_admin(may: tuple[Right, ...], right: Right) -> None:
    caller = Caller("c", may=may)
    if right in may or Right.ADMIN in may:
        caller.require(right)
    else:
        with pytest.raises(NotAllowed, match=f"may {right}"):
            caller.require(right)


@given(st.lists(NAMES, max_size=3).map(tuple), NAMES)
def test_without_patterns_a_fleet_is_seen_by_its_own_name_alone(fleets: tuple[str, ...], fleet: str) -> None:
    assert Caller("c", fleets).sees(fleet) is (fleet in fleets)
    assert Caller("c", tuple(f"{each}*" for each in fleets)).sees(fleet) is any(map(fleet.startswith, fleets))
    assert Caller("c", fleets, (Right.ADMIN,)).sees(fleet) and Caller("c").sees(fleet)


def test_an_audit_of_others_is_refused_in_the_words_for_one_that_is_not_there() -> None:
    caller = Caller("c", ("team-a",), USUAL)
    caller.require_audit(f"team-a-{DIGEST}", Right.CANCEL)
    with pytest.raises(UnknownAudit) as refused:
        caller.require_audit(f"team-b-{DIGEST}", Right.READ)
    assert refused.value.problems == unknown_audit(f"team-b-{DIGEST}").problems
    with pytest.raises(NotAllowed):  # the right is asked for first: it tells nothing about the audit
        Caller("c", ("team-a",), ()).require_audit(f"team-b-{DIGEST}", Right.READ)


def test_a_name_of_a_fleet_in_which_another_is_contained_is_another() -> None:
    caller = Caller("c", ("team-a",))
    for name in (f"team-a-b-{DIGEST}", f"x-team-a-{DIGEST}", f"team-A-{DIGEST}"):
        with pytest.raises(UnknownAudit):
            caller.require_audit(name, Right.READ)
