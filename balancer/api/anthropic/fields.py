"""Fields of `/v1/messages` without effect: ignored and reported, or refused by name.

The supported fields are those of the types in `requests` and `blocks`.
"""

from collections.abc import Mapping

from ..fields.field_table import Ignored, Refused, Rule, nothing

_CACHED = Ignored("prefixes are cached without being asked")

MESSAGES: Mapping[str, Rule] = {
    "billing_policy": Ignored("nothing is billed"),
    "cache_control": _CACHED,
    "compaction": Ignored("conversations are not compacted here"),
    "container": Refused("there are no containers that code could run in"),
    "diagnostics": Ignored("there are none to give"),
    "fallback_credit_token": Ignored("nothing is billed"),
    "fallbacks": Ignored("the model that is asked for answers"),
    "inference_geo": Ignored("the fleet is where it is"),
    "mcp_servers": Refused("servers of tools are not asked from here"),
    "metadata": Ignored("requests are not told apart by users"),
    "service_tier": Ignored("there are no tiers", nothing('"auto"', '"standard_only"')),
    "speed": Ignored("there is one speed", nothing('"standard"')),
    "user_profile_id": Ignored("there are no profiles"),
    "workspace_id": Ignored("there are no workspaces"),
    "messages[].content[].cache_control": _CACHED,
    "messages[].content[].citations": Ignored("models are not told what an answer cited"),
    "messages[].content[].is_error": Ignored("models read the result itself", nothing("false")),
    "messages[].content[].content[].cache_control": _CACHED,
    "messages[].content[].content[].citations": Ignored("nothing is cited"),
    "output_config.task_budget": Ignored("`max_tokens` is what bounds an answer"),
    "system[].cache_control": _CACHED,
    "system[].citations": Ignored("nothing is cited"),
    "thinking.budget_tokens": Ignored("thinking counts against `max_tokens`"),
    "tools[].allowed_callers": Ignored("only the model calls tools", nothing('["direct"]')),
    "tools[].cache_control": _CACHED,
    "tools[].defer_loading": Ignored("all tools are in the prompt", nothing("false")),
    "tools[].eager_input_streaming": Ignored("input is streamed as it comes"),
    "tools[].input_examples": Ignored("models are not told examples"),
}
