"""A JSON Schema of a request, with its field."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_PLAIN_KEY = re.compile(r"[A-Za-z_$][\w$-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Schema:
    """A lenient schema is enforced as far as possible; any other fully, or it is refused."""

    field: str
    schema: Mapping[str, Any]
    is_lenient: bool = False


def step(name: str) -> str:
    """The part of a field's path for the member `name`."""
    return (
        f".{name}"
        if _PLAIN_KEY.fullmatch(name)
        else f"[{json.dumps(name, ensure_ascii=False)[:66]}]"
    )
