"""The fields of an upload."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from .....shared.validation import invalid
from ...openapi.bodies import Body

FORM = "multipart/form-data"


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadForm:
    """`expires_after` as OpenAI's: seconds from the creation on."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    purpose: Literal["batch"]
    file: Annotated[str, Field(json_schema_extra={"format": "binary"})] = ""
    anchor: Annotated[Literal["created_at"], Field(alias="expires_after[anchor]")] = "created_at"
    expires_after: Annotated[
        int | None, Field(alias="expires_after[seconds]", ge=3600, le=2_592_000)
    ] = None


_fields = TypeAdapter(UploadForm)

UPLOAD_BODY = Body(name="FileBody", adapter=_fields, takes_nulls=False, media_type=FORM)


def parse_form(given: Mapping[str, str]) -> UploadForm:
    """The fields without the file. Raises `InvalidRequest`."""
    try:
        return _fields.validate_python(dict(given))
    except ValidationError as error:
        raise invalid(error, to_json(dict(given))) from error
