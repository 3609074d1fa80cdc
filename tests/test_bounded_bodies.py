"""Whatever the APIs and the agents' socket take: its lists and maps are checked frugally."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from arriero.balancer.api.anthropic import requests as anthropic
from arriero.balancer.api.fields.field_table import FieldTable
from arriero.balancer.api.native import queries as native_queries
from arriero.balancer.api.native import requests as native
from arriero.balancer.api.ollama import embeddings as ollama_embeddings
from arriero.balancer.api.ollama import models as ollama_models
from arriero.balancer.api.ollama import requests as ollama
from arriero.balancer.api.openai.batches import batch_routes as openai_batches
from arriero.balancer.api.openai.completions import requests as openai_completions
from arriero.balancer.api.openai.queries import embeddings as openai_embeddings
from arriero.balancer.api.openai.queries import rerank
from arriero.balancer.api.openai.responses import requests as openai_responses
from arriero.balancer.api.openapi.schemas import Body
from arriero.balancer.api.vllm import tokens as vllm
from arriero.shared.messages import FromAgent, FromBalancer
from arriero.shared.strict import build_schemas

READERS = (
    *(anthropic, native, native_queries, ollama, ollama_embeddings, ollama_models, vllm),
    *(openai_batches, openai_completions, openai_embeddings, openai_responses, rerank),
)

build_schemas()

FROM_OUTSIDE: dict[str, TypeAdapter[Any]] = {
    **{
        f"{module.__name__.partition('.api.')[2]}.{name}": body
        if isinstance(body, TypeAdapter)
        else body.adapter
        for module in READERS
        for name, body in vars(module).items()
        if isinstance(body, TypeAdapter | FieldTable | Body)
    },
    "FromAgent": TypeAdapter(FromAgent),
    "FromBalancer": TypeAdapter(FromBalancer),
}


def schemas_in(schema: Any) -> list[dict[str, Any]]:
    """All of pydantic's schemas within `schema`, itself included."""
    if isinstance(schema, list | tuple):
        return [found for each in schema for found in schemas_in(each)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if isinstance(schema.get("type"), str) else []
    return own + [found for key, each in schema.items() for found in _members(key, each)]


def _members(key: str, value: Any) -> list[dict[str, Any]]:
    return [] if key in ("metadata", "serialization") else schemas_in(value)


def checks_members(schema: dict[str, Any]) -> bool:
    items = schema.get("items_schema", {"type": "any"})
    return any(each["type"] != "any" for each in (items if isinstance(items, list) else [items]))


@pytest.mark.parametrize("name", FROM_OUTSIDE)
def test_every_list_from_outside_ends_its_check_at_the_first_fault(name: str) -> None:
    schemas = schemas_in(FROM_OUTSIDE[name].core_schema)
    lists = [schema for schema in schemas if schema["type"] in ("tuple", "list")]
    for schema in lists:
        assert schema.get("fail_fast") or not checks_members(schema), schema


@pytest.mark.parametrize("name", FROM_OUTSIDE)
def test_every_map_from_outside_that_checks_entries_is_bounded_before(name: str) -> None:
    """The check of the length has to stand around the check of the entries."""
    schemas = schemas_in(FROM_OUTSIDE[name].core_schema)
    maps = [each for each in schemas if each["type"] == "dict" and _checks_entries(each)]
    bounded = [
        each["schema"]
        for each in schemas
        if each["type"] == "function-before" and each["schema"]["type"] == "dict"
    ]
    assert all(each in bounded for each in maps)


def _checks_entries(schema: dict[str, Any]) -> bool:
    values = schema.get("values_schema", {"type": "any"})
    return values["type"] != "any" or schema["keys_schema"]["type"] != "str"


def test_lists_and_maps_are_seen() -> None:
    schemas = schemas_in(native.GENERATE_BODY.adapter.core_schema)
    assert sum(each["type"] == "tuple" for each in schemas) > 5
    assert sum(each["type"] == "dict" and _checks_entries(each) for each in schemas) > 1


def test_each_module_that_reads_has_a_body() -> None:
    modules = {name.rpartition(".")[0] for name in FROM_OUTSIDE}
    assert modules == {each.__name__.partition(".api.")[2] for each in READERS} | {""}
