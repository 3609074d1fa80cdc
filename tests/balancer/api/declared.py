"""Whether an answer is as its type says."""

from functools import cache

import jsonschema
from pydantic_core import from_json, to_json

from arriero.balancer.api.openapi.schemas import Form, described


def check(form: Form, answer: object) -> None:
    """Raises `ValidationError` where `answer`, as it is written, is not what `form` declares."""
    _validator(form).validate(from_json(to_json(answer)))


@cache
def _validator(form: Form) -> jsonschema.Draft202012Validator:
    found = described([form])
    components = {"components": {"schemas": dict(found.components)}}
    return jsonschema.Draft202012Validator({**found.schema(form), **components})
