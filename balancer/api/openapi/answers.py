"""JSON schemas of answers, generated from the types that serialisers return.

An answer is a `TypedDict`, so mypy checks the code that builds it, at no cost at run time. Parts of
it may be dataclasses, which are written as they are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from .schemas import Schema, untitled

Form = Any
"""A type, or a `Schema` that was written by hand."""

REFERENCE = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Described:
    """The schemas of some forms, and the components that they refer to."""

    components: Mapping[str, Schema]
    _schemas: Mapping[Any, Schema]

    def schema(self, form: Form) -> Schema:
        """The schema of one of the forms."""
        return form if isinstance(form, dict) else self._schemas[form]


def described(forms: Iterable[Form]) -> Described:
    """Describe `forms`. A named type becomes a component of its name."""
    types = list(dict.fromkeys(form for form in forms if not isinstance(form, dict)))
    schemas, whole = TypeAdapter.json_schemas(
        [(number, "serialization", TypeAdapter(each)) for number, each in enumerate(types)],
        ref_template=REFERENCE,
        schema_generator=_Generator,
    )
    return Described(
        {name: untitled(schema) for name, schema in whole.get("$defs", {}).items()},
        {types[int(number)]: untitled(schema) for (number, _), schema in schemas.items()},
    )


class _Generator(GenerateJsonSchema):
    """Objects have the members that their types declare and no others; dataclasses have all."""

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return {**super().typed_dict_schema(schema), "additionalProperties": False}

    def dataclass_args_schema(self, schema: core_schema.DataclassArgsSchema) -> JsonSchemaValue:
        return {**super().dataclass_args_schema(schema), "additionalProperties": False}

    def field_is_required(self, field: Any, *args: Any, **names: Any) -> bool:
        return field["type"] == "dataclass-field" or super().field_is_required(
            field, *args, **names
        )

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        inner: CoreSchema = schema["schema"]
        return self.generate_inner(inner)
