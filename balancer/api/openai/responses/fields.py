"""Fields of `/v1/responses` without effect: ignored and reported, or refused by name.

The supported fields are those of the types in `requests` and `items`.
"""

from collections.abc import Mapping

from ...fields.field_table import Ignored, Refused, Rule, nothing
from ..fields import HINTS

_HINTS = ("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention")

RESPONSE: Mapping[str, Rule] = {
    **{name: HINTS[name] for name in (*_HINTS, "safety_identifier", "service_tier")},
    "client_metadata": Ignored("it describes the client to its own service"),
    "context_management": Ignored("the input is not shortened here"),
    "max_tool_calls": Ignored("it counts calls of tools that only OpenAI runs"),
    "stream_options": Ignored("streams are not padded against observers"),
    "access_programs": Refused("there are no access programs here"),
    "background": Refused("a response lives as long as its connection", nothing("false")),
    "conversation": Refused("conversations are not kept; `previous_response_id` is"),
    "image": Refused("answers are text"),
    "moderation": Refused("nothing is moderated here"),
    "prompt": Refused("there are no stored prompts"),
    "truncation": Refused("the input is not shortened here", nothing('"disabled"')),
}
