"""What operators may send about keys."""

from pydantic import TypeAdapter

from ...access.key_spec import KeySpec
from ...api.openapi.bodies import Body

SPEC_BODY = Body(name="KeySpec", adapter=TypeAdapter(KeySpec))
