"""Validation errors as one sentence that names the field and says what is valid."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, from_json

from .errors import InvalidRequest

T = TypeVar("T")

Location = tuple[int | str, ...]

MAX_ECHO = 60
"""Maximum characters of a bad value that an error repeats."""

MAX_FINDINGS = 256
"""Maximum findings that are examined: each takes memory and time, and a message names only one."""

_JSON = json.JSONEncoder(ensure_ascii=False, default=str)
_QUOTE = "'"
_TAGS = ("union_tag_invalid", "union_tag_not_found")
"""Faults of the member of an object that says of which of several kinds the object is."""
_ABSENT = ("missing", "missing_argument", "union_tag_not_found")
_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")
_OF_THE_RIGHT_TYPE = frozenset(
    ("string_too_long", "string_too_short", "too_long", "too_short", "value_error")
)
"""Faults of values that clearly have the intended type."""
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]{0,63}", re.ASCII)


def _number(limit: float) -> str:
    return str(limit) if isinstance(limit, int) else f"{limit:.15g}"


def _at_least(least: int, one: str, several: str) -> str:
    return f"must have at least {f'one {one}' if least == 1 else f'{least} {several}'}"


def _any_of(choices: str) -> str:
    return " or ".join(choices.rsplit(", ", 1))


_REQUIREMENTS: Mapping[str, str | Callable[[Mapping[str, Any]], str]] = {
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "dataclass_type": "must be an object",
    "dict_type": "must be an object",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": lambda limits: f"must be more than {_number(limits['gt'])}",
    "greater_than_equal": lambda limits: f"must be at least {_number(limits['ge'])}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number of less than 4300 digits",
    "int_type": "must be a whole number",
    "less_than": lambda limits: f"must be less than {_number(limits['lt'])}",
    "less_than_equal": lambda limits: f"must be at most {_number(limits['le'])}",
    "list_type": "must be a list",
    "literal_error": lambda limits: f"must be {limits['expected']}",
    "model_type": "must be an object",
    "none_required": "must be null",
    "string_too_long": lambda limits: f"must have at most {limits['max_length']} characters",
    "string_too_short": lambda limits: _at_least(limits["min_length"], "character", "characters"),
    "string_type": "must be a string",
    "string_unicode": "must be valid Unicode",
    "too_long": lambda limits: f"must have at most {limits['max_length']} entries",
    "too_short": lambda limits: _at_least(limits["min_length"], "entry", "entries"),
    "tuple_type": "must be a list",
    "union_tag_invalid": lambda limits: f"must be {_any_of(limits['expected_tags'])}",
}


def parse_json(adapter: TypeAdapter[T], body: str | bytes) -> T:
    """Parse `body` as the adapter's type. Raises `InvalidRequest` that names the field."""
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        raise invalid(error, body) from error


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: its field, and a sentence that says what is valid."""

    field: str | None
    sentence: str


def all_problems(error: ValidationError, body: str | bytes) -> tuple[Problem, ...]:
    """Return all faults that `error` found in the JSON `body`, one problem for each place."""
    if error.error_count() > MAX_FINDINGS or error.errors()[0]["type"] == "json_invalid":
        whole = invalid(error, body)
        return (Problem(whole.field, whole.message),)
    findings = error.errors(include_url=False)
    document = from_json(body)
    places: dict[Location, list[ErrorDetails]] = {}
    for finding in findings:
        places.setdefault(_path(finding, document), []).append(finding)
    return tuple(
        Problem(_written(path) or None, _sentence(_written(path), found))
        for path, found in places.items()
        if not _is_above_another(path, places)
    )


def invalid(error: ValidationError, body: str | bytes) -> InvalidRequest:
    """Return the fault that `error` found in the JSON `body`, as an `InvalidRequest`."""
    if (num_findings := error.error_count()) > MAX_FINDINGS:
        # Only an object with as many members can do that: a list's check ends at its first fault.
        return InvalidRequest(f"{num_findings} fields of the body are unknown or wrong")
    findings = error.errors(include_url=False)
    if findings[0]["type"] == "json_invalid":
        return InvalidRequest(not_json("the body", findings[0]["msg"]))
    document = from_json(body)
    paths = [_path(finding, document) for finding in findings]
    path = _deepest(paths)
    field = _written(path)
    return InvalidRequest(
        _sentence(field, [f for f, p in zip(findings, paths, strict=True) if p == path]),
        field=field or None,
    )


MAX_DEPTH = 200
"""Maximum levels of lists and objects that the parser reads."""
MAX_DIGITS = 4300
"""Maximum digits of a number that the parser reads."""

_LIMITS = {
    "recursion limit exceeded": f"more than {MAX_DEPTH} levels of lists and objects",
    "number out of range": f"a number of more than {MAX_DIGITS} digits",
}


def not_json(what: str, reason: str) -> str:
    """Return a sentence for the parser's `reason`: `what` is not JSON, or exceeds a limit."""
    reason = reason.removeprefix("Invalid JSON: ")
    for limit, words in _LIMITS.items():
        if reason.startswith(limit):
            place = reason.removeprefix(limit)
            return f"the JSON of {what} has {words}, which is the limit,{place}"
    return f"{what} is not valid JSON: {reason}"


def requirement(finding: ErrorDetails) -> str:
    """Return what a valid value is: `must be at least 1`."""
    known = _REQUIREMENTS.get(finding["type"])
    if known is None:
        return finding["msg"].removeprefix("Value error, ")
    return known if isinstance(known, str) else known(finding.get("ctx", {}))


def echo(value: object) -> str:
    """Return a bad value for an error message: JSON of at most `MAX_ECHO` characters."""
    shown = value[:MAX_ECHO] if isinstance(value, str) else value
    # Encode in pieces of at least a character and stop early: the value may be huge.
    text = "".join(islice(_JSON.iterencode(shown), MAX_ECHO + 1))
    return text if len(text) <= MAX_ECHO else text[: MAX_ECHO - 1] + "…"


def _path(finding: ErrorDetails, document: Any) -> Location:
    """Return the finding's place in the document: its location without the union branches."""
    path: list[int | str] = []
    *inner, last = (*finding["loc"], *_tag(finding)) or ("",)
    for part in inner:
        if _holds(document, part):
            document = document[part]
            path.append(part)
    names_absentee = finding["type"] in _ABSENT + _UNKNOWN
    return (*path, last) if names_absentee or _holds(document, last) else tuple(path)


def _tag(finding: ErrorDetails) -> tuple[str, ...]:
    """Return the name of the member that names the object's kind, if that member is wrong."""
    if finding["type"] not in _TAGS:
        return ()
    return (finding["ctx"]["discriminator"].strip(_QUOTE),)


def _value(finding: ErrorDetails) -> Any:
    """Return the wrong value."""
    value = finding["input"]
    for name in _tag(finding):
        value = value[name]
    return value


def _holds(document: Any, part: int | str) -> bool:
    if isinstance(document, list):
        return isinstance(part, int) and part < len(document)
    return isinstance(document, dict) and part in document


def _deepest(paths: list[Location]) -> Location:
    """Return the longest path at or below the first finding's path: the intended union branch."""
    first = paths[0]
    return max((path for path in paths if path[: len(first)] == first), key=len)


def _is_above_another(path: Location, places: Iterable[Location]) -> bool:
    """Return whether a place below `path`, in the intended union branch, is wrong, too."""
    return any(len(other) > len(path) and other[: len(path)] == path for other in places)


def _written(path: Location) -> str:
    """Return a path as people write it: `messages[0].content`, `logit_bias["17"]`."""
    return "".join(map(_step, path)).removeprefix(".")


def _step(part: int | str) -> str:
    if isinstance(part, str) and _PLAIN_KEY.fullmatch(part):
        return f".{part}"
    return f"[{echo(part)}]"


def _sentence(field: str, findings: list[ErrorDetails]) -> str:
    present = [each for each in findings if each["type"] not in _UNKNOWN + _ABSENT]
    if not present:
        known = findings[0]["type"] in _ABSENT
        return f"`{field}` is missing" if known else f"unknown field `{field}`"
    if fitting := [each for each in present if each["type"] in _OF_THE_RIGHT_TYPE]:
        present = [each for each in present if each in fitting or not _is_of_type(each)]
    reasons = " or ".join(dict.fromkeys(map(requirement, present)))
    reasons = reasons.replace(" or must be ", " or ")
    if not field:
        return reasons if present[0]["type"] == "value_error" else f"the body {reasons}"
    return f"`{field}` {reasons}, not {echo(_value(present[0]))}"


def _is_of_type(finding: ErrorDetails) -> bool:
    return finding["type"].endswith("_type")
