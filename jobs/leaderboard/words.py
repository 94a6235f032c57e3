"""The sentences that stand under a leaderboard, and what is said when nothing is left to rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.errors import Problem, counted, examples
from tracking.bundle.marker import without_secret
from tracking.leaderboard.audited_runs import read_values
from tracking.leaderboard.rows import UNDECLARED, Entry, Standing
from tracking.names import shorten

AND = "; "
COMMON = ("dataset", "threat_model", "samples")
"""What rows that are ranked together have in common."""


def setting_notes(entries: Sequence[Entry], common: Mapping[str, str]) -> list[str]:
    """What the rows are, and in what they differ though they stand in one ranking."""
    own = [entry for entry in entries if not entry.source]
    mixed = [
        f"{name.replace('_', ' ')} ({examples(sorted({getattr(entry, name) or '(none)' for entry in own}), mark=AND)})"
        for name in COMMON
        if len({getattr(entry, name) for entry in own}) > 1
    ]
    notes = [f"ranked together though they differ in {' and in '.join(mixed)}"] if mixed else []
    if own and common["threat_model"] == UNDECLARED:
        notes.append(
            "no threat model is declared, so nothing says that these models were made for the same perturbations"
        )
    if any(entry.count > 1 for entry in own):
        notes.append("n > 1: a mean over models that differ in the seed alone; sd is the deviation over them")
    if own and len(own) < len(entries):
        published = counted(len(entries) - len(own), "published row")
        notes.append(f"{published}, marked †, ranked among the audited ones")
    return notes


def composite_notes(
    absent: Sequence[str], even: Sequence[str], entries: Sequence[Entry], standings: Sequence[Standing]
) -> list[str]:
    """What does not count for the score, and who has none."""
    notes = []
    if absent:
        notes.append(f"not in the score, for no row has it: {', '.join(absent)}")
    if even:
        notes.append(f"not in the score, for all compared rows are equal in it: {', '.join(even)}")
    unranked = [(e.name, s.score.reason) for e, s in zip(entries, standings, strict=True) if s.place is None]
    if unranked and len(unranked) < len(entries):
        reasons = examples([f"{shorten(name, 40)} ({reason})" for name, reason in unranked], most=3, mark=AND)
        have = "has" if len(unranked) == 1 else "have"
        notes.append(f"{len(unranked)} of {len(entries)} rows {have} no score: {reasons}")
    elif unranked:
        notes.append(f"no row has a score: {examples(sorted({reason for _, reason in unranked}), most=3, mark=AND)}")
    return notes


def place_notes(entries: Sequence[Entry], standings: Sequence[Standing]) -> list[str]:
    """The places that the first rows may have: a bare first would say more than the numbers do."""
    ranked = [pair for pair in zip(entries, standings, strict=True) if pair[1].between is not None]
    if len(ranked) < 2:
        return []
    ranked.sort(key=lambda pair: pair[1].place or len(entries))
    named = [f"{shorten(entry.name, 40)} {_between(standing.between)}" for entry, standing in ranked]
    return [f"places that the rows may have: {examples(named, most=5, mark=AND)}"]


def _between(places: tuple[int, int] | None) -> str:
    best, worst = places or (0, 0)
    return str(best) if best == worst else f"{best} to {worst}"


def nothing_left(
    uri: str, experiments: Sequence[str], filters: Mapping[str, Sequence[str]], since: int
) -> list[Problem]:
    """Why no model is left: the filters, each with the values that exist, or no audit at all."""
    where = without_secret(uri)
    if not filters:
        what = f"{where}, experiments {examples(experiments, mark=AND)}" if experiments else where
        remedy = "run `classwise audit`, or `classwise sync` for bundles that were never uploaded"
        when = " since then" if since else ""
        return [Problem(what, "at least one complete audited model", f"none{when}", remedy)]
    known = read_values(uri, list(filters), experiments=experiments)
    problems = []
    for key, wanted in filters.items():
        exist = examples([repr(shorten(value, 60)) for value in known[key]], most=20)
        lacking = [value for value in wanted if value not in known[key]]
        if not known[key]:
            problems.append(Problem(f"--filter {key}", "a key that runs have", repr(key), _KEYS))
        elif lacking:
            problems.append(Problem(f"--filter {key}", f"one of {exist}", examples([repr(value) for value in lacking])))
    conditions = " and ".join(f"{key}={' or '.join(wanted)}" for key, wanted in filters.items())
    together = Problem("--filter", "a model that passes all filters", f"none for {conditions}", "drop one of them")
    return problems or [together]


_KEYS = "use dataset, architecture, method, seed, threat_model, model, or a tag of the fleet file"
