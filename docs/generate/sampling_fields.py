"""Makes text from the sampling fields: parts of pages, of the client and of the playground."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

from pydantic import TypeAdapter

from arriero.agent.engine.sampling.sampling import Dry, Sampling
from arriero.agent.upstream.protocol.dialects import KINDS
from arriero.shared.sampling import SAMPLERS, SamplerAbility, SamplingChoices

from .tables import Schema, kind_of, table

TITLES: Mapping[str, str] = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "lm-studio": "LM Studio",
    "arriero": "Arriero",
}
"""Names of kinds of servers for people, if the name differs from `kind`."""

SCHEMAS: Mapping[str, Schema] = TypeAdapter(SamplingChoices).json_schema()["properties"]

_TYPES = {"number": "float", "integer": "int", "boolean": "bool", "string": "str"}


def fields_table() -> str:
    """Return the table for `docs/api.md` with the meaning of each field."""
    rows = [
        (f"`{name}`", _value(SCHEMAS[name]), _default(name), _meaning(name)) for name in SAMPLERS
    ]
    return f"\n{table(('field', 'value', 'default', 'meaning'), rows)}\n"


def abilities_table() -> str:
    """Return the table for `docs/upstream.md`: the fields that each kind of server gets."""
    rows = [(f"`{each}`", _names(each), ", ".join(_kinds(each))) for each in _come_with_a_kind()]
    return f"\n{table(('ability', 'of a request with', 'found in'), rows)}\n"


def client_fields() -> str:
    """Return the fields' types for `client/requests.py`."""
    return "\n".join(f"    {name}: {_type(schema)}" for name, schema in SCHEMAS.items())


def form_fields() -> str:
    """Return lines for the playground: name, minimum, maximum and step of each number input."""
    rows = (
        [name, *_bounds(SCHEMAS[name]), sampler.step]
        for name, sampler in SAMPLERS.items()
        if sampler.step is not None
    )
    return "\n".join(f"  {json.dumps(row)}," for row in rows)


def _given(schema: Schema) -> Schema:
    """Return the schema of a value that is not null."""
    kinds = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return kinds[0] if kinds else schema


def _value(schema: Schema) -> str:
    given = _given(schema)
    if given["type"] == "integer" and given.get("exclusiveMaximum") == 2**31:
        given = {name: value for name, value in given.items() if name != "exclusiveMaximum"}
    return kind_of(given)


def _bounds(schema: Schema) -> tuple[float | None, float | None]:
    given = _given(schema)
    least = given.get("minimum", given.get("exclusiveMinimum"))
    return least, given.get("maximum")


def _type(schema: Schema) -> str:
    match _given(schema):
        case {"type": "array", "items": items}:
            return f"Sequence[{_type(items)}]"
        case {"type": "object", "additionalProperties": values}:
            return f"dict[str, {_type(values)}]"
        case given:
            return _TYPES[given["type"]]


def _meaning(name: str) -> str:
    sampler = SAMPLERS[name]
    return sampler.meaning + ("" if sampler.off is None else f"; {sampler.off:g}: off")


def _default(name: str) -> str:
    """Return the engine's default, under the same name or DRY's name."""
    defaults = {each.name: each.default for each in fields(Sampling)}
    defaults |= {f"dry_{each.name}": each.default for each in fields(Dry)}
    value: Any = defaults.get(name, MISSING)
    if value is MISSING:
        value = SAMPLERS[name].off
    if value is None or value == ():
        return "none"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


def _come_with_a_kind() -> Iterator[SamplerAbility]:
    """Yield the abilities that follow from the kind of server, in the order of their fields."""
    abilities = dict.fromkeys(each.ability for each in SAMPLERS.values())
    for ability in abilities:
        if ability is not None and any(ability in kind.abilities for kind in KINDS):
            yield ability


def _names(ability: SamplerAbility) -> str:
    return ", ".join(f"`{name}`" for name, each in SAMPLERS.items() if each.ability == ability)


def _kinds(ability: SamplerAbility) -> list[str]:
    able = [each.kind for each in KINDS if ability in each.abilities]
    return ["all"] if len(able) == len(KINDS) else [TITLES.get(each, each) for each in able]
