"""Converts a value that a model wrote (JSON, a Python literal, or text) to JSON."""

import ast
import json
from typing import NoReturn
from warnings import catch_warnings, simplefilter


def as_json(written: str) -> str:
    """Return JSON for `written`; a value that is neither JSON nor Python becomes a string."""
    stripped = written.strip()
    try:
        json.loads(stripped, parse_constant=_refused)
    except (ValueError, RecursionError):
        escaped = stripped.replace("\n", "\\n")  # some models do not escape them within quotes
        return _from_python(stripped) or _from_python(escaped) or as_text(written)
    return stripped


def as_text(written: str) -> str:
    """Return `written` as a JSON string."""
    return json.dumps(written, ensure_ascii=False)


def _from_python(written: str) -> str | None:
    try:
        with catch_warnings():
            simplefilter("ignore")  # a model's syntax must not cause warnings in our log
            value = ast.literal_eval(written)
        found = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    # Python can escape a lone surrogate, which is no character.
    return found.encode("utf-8", "replace").decode()


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
