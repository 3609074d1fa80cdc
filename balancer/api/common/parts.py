"""Splits the inputs of one call into parts for several agents, and joins their answers.

Parts are small: the first answers come early, a lost agent costs little, and no agent is busy with
one call for long.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ....shared.errors import RequestError, from_agent
from ....shared.queries import Embedded, EmbedInput, Ranked, Result, Score, Vector

MAX_PART_INPUTS = 16
MAX_PART_BYTES = 16 * 1024
"""Maximum bytes of text in a part; a token id counts as four. A single input may have more."""
_TOKEN_BYTES = 4

Input = TypeVar("Input", bound=EmbedInput)


def in_parts(inputs: Sequence[Input]) -> list[tuple[Input, ...]]:
    """Split the inputs, in order, into non-empty parts."""
    parts: list[list[Input]] = []
    room = 0
    for each in inputs:
        size = _size(each)
        if not parts or size > room or len(parts[-1]) == MAX_PART_INPUTS:
            parts.append([])
            room = MAX_PART_BYTES
        parts[-1].append(each)
        room -= size
    return [tuple(part) for part in parts]


def _size(given: EmbedInput) -> int:
    return (
        len(given.encode("utf-8", "replace"))
        if isinstance(given, str)
        else len(given) * _TOKEN_BYTES
    )


def vectors_of(results: Iterable[Result]) -> list[Vector]:
    """Return the results of all parts of an `Embed`, in the order of the inputs."""
    return [each for result in results for each in _expected(result, Embedded).vectors]


def scores_of(results: Iterable[Result]) -> list[Score]:
    """Return the results of all parts of a `Rank`, in the order of the documents."""
    return [each for result in results for each in _expected(result, Ranked).scores]


Kind = TypeVar("Kind")


def only(results: Sequence[Result], kind: type[Kind]) -> Kind:
    """Return the result of a query with one part."""
    [result] = results
    return _expected(result, kind)


def _expected(result: Result, kind: type[Kind]) -> Kind:
    if not isinstance(result, kind):
        raise TypeError(f"an agent answered with {result.type} instead of {kind.__name__}")
    return result


@dataclass(frozen=True, slots=True)
class Faulty:
    """The index of an input that failed, and its error."""

    index: int
    error: RequestError


def first_fault(outcomes: Iterable[Vector | Score]) -> Faulty | None:
    """Return the first input that failed, for APIs in which one error fails the call."""
    for index, outcome in enumerate(outcomes):
        if outcome.error is not None:
            return Faulty(index, from_agent(outcome.error))
    return None
