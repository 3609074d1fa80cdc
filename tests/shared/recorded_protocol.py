"""Protocol 1 as it is recorded in `protocol_1/`: what each side may say, and frames that say it.

`python -m tests.shared.recorded_protocol` records it from the code as it is now. Once version 0.1.0
is released, nobody records it again: agents and balancers of that version speak it.
"""

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from arriero.shared.messages import (
    FromAgent,
    FromBalancer,
    encode_from_agent,
    encode_from_balancer,
)
from tests.shared.protocol_messages import FROM_AGENT, FROM_BALANCER

Side = Literal["agent", "balancer"]

FOLDER = Path(__file__).parent / "protocol_1"

_TYPES: dict[Side, Any] = {"agent": FromAgent, "balancer": FromBalancer}


def frames(side: Side) -> list[str]:
    """What was recorded of `side`."""
    return (FOLDER / f"from_{side}.jsonl").read_text().splitlines()


def present_frames(side: Side) -> list[str]:
    """The same messages, as they are written now."""
    if side == "agent":
        return [encode_from_agent(each).decode() for each in FROM_AGENT]
    return [encode_from_balancer(each).decode() for each in FROM_BALANCER]


def schema(side: Side) -> dict[str, Any]:
    """The fields and bounds that were recorded of `side`."""
    recorded: dict[str, Any] = json.loads((FOLDER / f"from_{side}.schema.json").read_text())
    return recorded


def present_schema(side: Side) -> dict[str, Any]:
    """The fields and bounds of protocol 1 as they are now."""
    present: dict[str, Any] = of_version(TypeAdapter(_TYPES[side]).json_schema(), 1)
    return present


def of_version(part: Any, version: int) -> Any:
    """A JSON schema without fields that came later, and without words, which change nothing."""
    if isinstance(part, list):
        return [of_version(each, version) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        name: of_version(each, version)
        for name, each in part.items()
        if not (name in ("title", "description") and isinstance(each, str))
        if not (isinstance(each, dict) and each.get("since", version) > version)
    }


def record() -> None:
    """Write down what the code says now."""
    FOLDER.mkdir(exist_ok=True)
    sides: tuple[Side, Side] = ("agent", "balancer")
    for side in sides:
        lines = "".join(f"{frame}\n" for frame in present_frames(side))
        (FOLDER / f"from_{side}.jsonl").write_text(lines)
        text = json.dumps(present_schema(side), indent=1, sort_keys=True)
        (FOLDER / f"from_{side}.schema.json").write_text(f"{text}\n")


if __name__ == "__main__":
    record()
