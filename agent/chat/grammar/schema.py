"""A JSON Schema of a request and where it stands in it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_PLAIN_KEY = re.compile(r"[A-Za-z_$][\w$-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Schema:
    """A lenient one is enforced as far as that can be done; any other as a whole, or refused."""

    field: str
    schema: Mapping[str, Any]
    is_lenient: bool = False


def step(name: str) -> str:
    """What leads on to the member `name` in a field."""
    return (
        f".{name}"
        if _PLAIN_KEY.fullmatch(name)
        else f"[{json.dumps(name, ensure_ascii=False)[:66]}]"
    )
