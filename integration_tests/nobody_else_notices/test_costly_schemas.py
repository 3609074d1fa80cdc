"""Schemas that cost as much as possible, one for each of an agent's preparation threads."""

import asyncio
from typing import Any

import pytest

from integration_tests.corpus import generate, plain_cases
from integration_tests.daemons import Fleet
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCHEMA = {
    "$defs": {"d": {"enum": [f"value{n}" for n in range(20_000)]}},
    "type": "object",
    "properties": {**{f"p{n}": {"$ref": "#/$defs/d"} for n in range(600)}, "z": {"not": {}}},
}


async def test_a_fault_in_a_large_schema(long_fleet: Fleet) -> None:
    """Its place is looked for part by part, and others are prepared soon."""
    grammar = {"type": "json_schema", "schema": SCHEMA}
    case = plain_cases()[0]

    async def answer(**body: Any) -> Any:
        return await generate(long_fleet.http, long_fleet.inference, body)

    async def attack(seen: Bystander) -> None:
        *refused, served = await asyncio.gather(
            answer(prompt="x", grammar=grammar),
            answer(prompt="y", grammar=grammar),
            answer(**case.body),
        )
        assert served.text == case.answer
        for each in refused:
            assert (each.status, each.end["error"]["field"]) == (400, "grammar.schema")

    await unnoticed(long_fleet, attack)
