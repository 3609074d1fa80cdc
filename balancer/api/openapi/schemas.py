"""JSON schemas of bodies and answers, generated from the types that check and make them.

An answer is a `TypedDict`, so mypy checks the code that builds it, at no cost at run time. Its
parts may be dataclasses.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

Schema = dict[str, Any]

Form = Any
"""A type, or a handwritten `Schema`."""

STRING: Schema = {"type": "string"}
NOTHING: Schema = {"type": "null"}

REFERENCE = "#/components/schemas/{model}"

# ---- bodies


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A request body in the OpenAPI document: its type, and further forms that the API accepts.

    `name` is the name of the body's component. `takes_nulls`: a field that is null counts as
    absent. `also` maps a field to a further type, whose values the API converts before it
    validates the body.
    """

    name: str
    adapter: TypeAdapter[Any]
    takes_nulls: bool = True
    also: Mapping[str, TypeAdapter[Any]] = field(default_factory=dict)

    def schemas(self) -> dict[str, Schema]:
        """Return the schemas of the body, as the component `name`, and of nested types, as
        `name.…`.
        """
        name = self.name
        whole = self.adapter.json_schema(ref_template=f"#/components/schemas/{name}.{{model}}")
        parts = whole.pop("$defs", {})
        components = {name: self._widened(whole)}
        components |= {f"{name}.{part}": schema for part, schema in parts.items()}
        return {each: untitled(schema) for each, schema in components.items()}

    def described(self) -> Schema:
        """Return the `requestBody` of an operation that takes this body."""
        schema = {"$ref": REFERENCE.format(model=self.name)}
        return {"required": True, "content": {"application/json": {"schema": schema}}}

    def _widened(self, schema: Schema) -> Schema:
        required = schema.get("required", [])
        fields = {
            field: self._taken(field, value, is_required=field in required)
            for field, value in schema["properties"].items()
        }
        return {**schema, "properties": fields}

    def _taken(self, field: str, schema: Schema, *, is_required: bool) -> Schema:
        besides = [self.also[field].json_schema()] if field in self.also else []
        if self.takes_nulls and not is_required:
            besides.append(NOTHING)
        return {"anyOf": [schema, *besides]} if besides else schema


# ---- answers


@dataclass(frozen=True, slots=True)
class Described:
    """The schemas of some types, and the components to which they refer."""

    components: Mapping[str, Schema]
    _schemas: Mapping[Any, Schema]

    def schema(self, form: Form) -> Schema:
        """Return the schema of one of the types."""
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
    """Generates schemas.

    Objects have only the members that their types declare; dataclasses have all.
    """

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


def untitled(schema: Any) -> Any:
    """Return `schema` without titles and defaults that only repeat a field's name or `null`."""
    if isinstance(schema, list):
        return [untitled(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: untitled(value)
        for name, value in schema.items()
        if not (name == "title" and isinstance(value, str))
        and not (name == "default" and value is None)
    }
