"""What a run found, for people: a line a round, a table of faults, and each finding in full."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.chaos.faults import KINDS, Kind
from bench.chaos.judge import Episode, Judge
from bench.chaos.record import Record
from bench.chaos.run import Finding, RoundResult
from bench.harness import print_table

MOST_FINDINGS = 20
"""Findings that are shown in full."""


@dataclass(slots=True)
class Row:
    """A row for one kind of fault: how often it struck, requests it touched, those that moved.

    `silence` is the longest while it struck alone, `bound` what was allowed then, in seconds.
    """

    count: int = 0
    touched: int = 0
    moved: int = 0
    errors: int = 0
    silence: float = 0.0
    bound: float = 0.0


def line(result: RoundResult) -> str:
    """One round in a line."""
    faults = ", ".join(map(str, result.round.faults))
    moved = sum(record.num_moves > 0 for record in result.records)
    errors = sum(len(record.errors) for record in result.records)
    longest = max((silence(record) for record in result.records), default=0.0)
    verdict = f"{len(result.findings)} FINDINGS" if result.findings else "clean"
    return (
        f"{result.round.number:4} {faults}: {len(result.records)} requests, {moved} moved, "
        f"{errors} errors, longest silence {longest:.1f} s, {verdict}"
    )


def silence(record: Record) -> float:
    """The longest of one request."""
    return max(end - begin for begin, end in record.silences)


def rows(results: Iterable[RoundResult], judge: Judge) -> dict[Kind, Row]:
    """The table, by kind. Rounds with two faults count for both, but not their silences."""
    table: dict[Kind, Row] = {}
    for result in results:
        for episode in result.episodes:
            row = table.setdefault(episode.kind, Row())
            row.count += 1
            touched = [each for each in result.records if _touched(episode, each)]
            row.touched += len(touched)
            row.moved += sum(record.num_moves > 0 for record in touched)
            row.errors += sum(bool(record.errors) for record in touched)
            if len(result.episodes) == 1:
                _measure(row, episode, touched, judge)
    return {kind: table[kind] for kind in KINDS if kind in table}


def _measure(row: Row, episode: Episode, touched: Sequence[Record], judge: Judge) -> None:
    for record in touched:
        for begin, end in record.silences:
            if end - begin > row.silence and episode.touches(begin, end):
                row.silence = end - begin
                row.bound = judge.allowed_silence(begin, end, [episode])


def _touched(episode: Episode, record: Record) -> bool:
    return episode.touches(record.sent_at, record.ended_at)


def show(rows: dict[Kind, Row]) -> None:
    """Print the table."""
    columns = ("fault", "times", "requests", "moved", "errors", "longest silence", "allowed")
    cells = (
        [
            kind.name,
            *map(str, (row.count, row.touched, row.moved, row.errors)),
            *(f"{each:.1f} s" for each in (row.silence, row.bound)),
        ]
        for kind, row in rows.items()
    )
    print_table("Faults", columns, cells)


def in_full(findings: Sequence[Finding]) -> str:
    """Each with the whole record of its request."""
    parts = []
    for finding in findings[:MOST_FINDINGS]:
        parts.append(f"round {finding.round}: {finding.what}")
        if finding.record is not None:
            parts.append(json.dumps(finding.record.document()))
    if len(findings) > MOST_FINDINGS:
        parts.append(f"and {len(findings) - MOST_FINDINGS} more")
    return "\n".join(parts)
