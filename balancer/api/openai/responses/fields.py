"""Fields of `/v1/responses` without effect: ignored and reported, or refused by name.

The supported fields are the fields of the types in `requests` and `items`.
"""

from collections.abc import Mapping

from ...fields.field_table import Ignored, Refused, Rule, nothing
from ..fields import (
    CACHE_BREAKPOINT,
    HINTS,
    NO_FILES,
    NO_REFUSALS,
    ONLY_FUNCTIONS,
    SERVERS_REFUSED,
)

_DETAIL = Ignored("the model decides how pictures are scaled", nothing('"auto"'))
_NO_STORED = Refused("pictures cannot be stored; send the picture itself as `image_url`")
_NOT_PASSED = Ignored(ONLY_FUNCTIONS)
_NOT_CALLED = Refused("models can call only functions")
_IN_ANSWER = Ignored("the model sees only the answer that used the result")
_ONE_MODEL = Refused("a response comes from one model")
_GIVEN_TOOLS = Refused("give `tools` for the whole response")

_HINTS = ("prompt_cache_options", "prompt_cache_retention")

RESPONSE: Mapping[str, Rule] = {
    **SERVERS_REFUSED,
    **{name: HINTS[name] for name in _HINTS},
    "client_metadata": Ignored("the balancer does not use data about the client"),
    "context_management": Ignored("the input is never shortened"),
    "max_tool_calls": Ignored("the balancer runs no tools"),
    "stream_options": Ignored("streams are not obfuscated"),
    "access_programs": Refused("there are no access programs"),
    "image": Refused("answers are text"),
    "moderation": Refused("there is no moderation"),
    "multi_agent": _ONE_MODEL,
    "personality": Ignored("there are no presets of the style"),
    "prompt": Refused("there are no stored prompts"),
    "truncation": Ignored("an input that is too long is refused", nothing('"disabled"')),
    "reasoning.context": Ignored(
        "the model's chat template decides which reasoning the model sees", nothing('"auto"')
    ),
    "reasoning.mode": Ignored("there is only one mode", nothing('"standard"')),
    "tools[].allowed_callers": Ignored("only the model calls tools", nothing('["direct"]')),
    "tools[].async": Ignored("a call of a function may take any time"),
    "tools[].defer_loading": Ignored("all tools are always in the prompt", nothing("false")),
    "tools[].output_schema": Ignored("schemas of results are not passed to models"),
}
"""Options of a body; the other fields follow below."""

TOOL_TYPES = (
    *("apply_patch", "code_interpreter", "computer", "computer_use_preview", "custom"),
    *("file_search", "image_generation", "local_shell", "mcp", "programmatic_tool_calling"),
    *("shell", "tool_search", "web_search", "web_search_2025_08_26", "web_search_preview"),
    "web_search_preview_2025_03_11",
)
"""Tools other than functions: they run on OpenAI's servers, or take text without a schema."""

_CALLS = (
    *("apply_patch", "code_interpreter", "computer", "custom_tool", "image_generation"),
    *("local_shell", "mcp", "shell"),
)
_OUTPUTS = ("apply_patch", "computer", "custom_tool", "local_shell", "shell")

TOOLS: Mapping[str, Rule] = {
    **{f"tools[].type={kind}": _NOT_PASSED for kind in (*TOOL_TYPES, "*")},
    **{
        f"tools[].tools[].{name.removeprefix('tools[].')}": rule
        for name, rule in RESPONSE.items()
        if name.startswith("tools[].")
    },
    "tools[].tools[].type=custom": _NOT_PASSED,
    "tools[].tools[].type=*": _NOT_PASSED,
    **{f"tool_choice.type={kind}": _NOT_CALLED for kind in (*TOOL_TYPES, "computer_use")},
}

ITEMS: Mapping[str, Rule] = {
    **{f"input[].type={kind}_call": _NOT_CALLED for kind in _CALLS},
    **{f"input[].type={kind}_call_output": _NOT_CALLED for kind in _OUTPUTS},
    "input[].agent": Ignored("models see only the role of a message's author"),
    "input[].async": Ignored("a call of a function may take any time"),
    "input[].caller": Ignored("only the model calls tools", nothing('{"type":"direct"}')),
    "input[].type=additional_tools": _GIVEN_TOOLS,
    "input[].type=agent_message": _ONE_MODEL,
    "input[].type=compaction": Refused(
        "only the service that wrote the compacted input can read it"
    ),
    "input[].type=compaction_trigger": Refused("the input is never shortened"),
    "input[].type=configuration_update": Refused("give options for the whole response"),
    "input[].type=file_search_call": _IN_ANSWER,
    "input[].type=mcp_approval_request": _NOT_CALLED,
    "input[].type=mcp_approval_response": _NOT_CALLED,
    "input[].type=mcp_list_tools": _NOT_PASSED,
    "input[].type=multi_agent_call": _ONE_MODEL,
    "input[].type=multi_agent_call_output": _ONE_MODEL,
    "input[].type=program": _NOT_CALLED,
    "input[].type=program_output": _NOT_CALLED,
    "input[].type=tool_search_call": _GIVEN_TOOLS,
    "input[].type=tool_search_output": _GIVEN_TOOLS,
    "input[].type=web_search_call": _IN_ANSWER,
    "input[].content[].prompt_cache_breakpoint": CACHE_BREAKPOINT,
    "input[].content[].type=input_file": NO_FILES,
    "input[].content[].detail": _DETAIL,
    "input[].content[].file_id": _NO_STORED,
    "input[].content[].type=refusal": NO_REFUSALS,
    "input[].output[].prompt_cache_breakpoint": CACHE_BREAKPOINT,
    "input[].output[].type=input_file": NO_FILES,
    "input[].output[].detail": _DETAIL,
    "input[].output[].file_id": _NO_STORED,
}

BODY: Mapping[str, Rule] = {**RESPONSE, **TOOLS, **ITEMS}

_NO_OTHER_TOOLS = "only functions are supported as tools"
_NO_AUDIO = "answers are text"
_WHOLE_REASONING = "reasoning is sent in full, not as a summary"

NEVER_SENT: Mapping[str, str] = {
    **{
        f"response.audio{part}.{end}": _NO_AUDIO
        for part in ("", ".transcript")
        for end in ("delta", "done")
    },
    **{
        f"response.code_interpreter_call.{state}": _NO_OTHER_TOOLS
        for state in ("in_progress", "interpreting", "completed")
    },
    **{f"response.code_interpreter_call_code.{end}": _NO_OTHER_TOOLS for end in ("delta", "done")},
    **{f"response.custom_tool_call_input.{end}": _NO_OTHER_TOOLS for end in ("delta", "done")},
    **{
        f"response.file_search_call.{state}": _NO_OTHER_TOOLS
        for state in ("in_progress", "searching", "completed")
    },
    **{
        f"response.image_generation_call.{state}": _NO_OTHER_TOOLS
        for state in ("in_progress", "generating", "partial_image", "completed")
    },
    **{
        f"response.mcp_call.{state}": _NO_OTHER_TOOLS
        for state in ("in_progress", "completed", "failed")
    },
    **{f"response.mcp_call_arguments.{end}": _NO_OTHER_TOOLS for end in ("delta", "done")},
    **{
        f"response.mcp_list_tools.{state}": _NO_OTHER_TOOLS
        for state in ("in_progress", "completed", "failed")
    },
    **{f"response.shell_call_command.{end}": _NO_OTHER_TOOLS for end in ("added", "delta", "done")},
    **{f"response.shell_call_output_content.{end}": _NO_OTHER_TOOLS for end in ("delta", "done")},
    **{
        f"response.web_search_call.{state}": _NO_OTHER_TOOLS
        for state in ("in_progress", "searching", "completed")
    },
    **{f"response.reasoning_summary_part.{end}": _WHOLE_REASONING for end in ("added", "done")},
    **{f"response.reasoning_summary_text.{end}": _WHOLE_REASONING for end in ("delta", "done")},
    **{
        f"response.refusal.{end}": ("models refuse in the text of the answer")
        for end in ("delta", "done")
    },
    "response.compaction.compacting": "the input is never shortened",
    "response.output_text.annotation.added": "nothing is cited",
}
"""Types of events that OpenAI's library knows but streams do not have, with the reason."""
