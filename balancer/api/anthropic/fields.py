"""Fields of `/v1/messages` without effect: ignored and reported, or refused by name.

The supported fields are the fields of the types in `requests`, `options` and `conversation`.
"""

from collections.abc import Iterator, Mapping

from ..fields.field_table import Ignored, Refused, Rule, nothing

_CACHED = Ignored("prefixes are always cached")
_UNCITED = Ignored("citations are not passed to models")
_NO_SERVERS = Ignored("only Anthropic's servers can run this tool, so the model does not get it")
_NO_SCREEN = Ignored("the tool answers with screenshots, so the model does not get it")
_NO_IMAGES = Refused("pictures are supported only in messages and tool results; send a description")
_NO_LINKS = Refused(
    "the balancer reads only links to pictures, and only with --media-urls; send the "
    "picture or the text itself"
)
_AS_IT_IS = Ignored("the model decides how pictures are scaled", nothing("{}"))
_NO_FILES = Refused("files are not stored for messages; send the text of the file")
_ELSEWHERE = Ignored("the model does not get the results of tools that ran on Anthropic's servers")

_BLOCKS = "messages[].content[]"
_INNER = f"{_BLOCKS}.content[]"
_DEFINITION = "tool.definition"

SERVER_TOOLS = (
    "advisor_20260301",
    "code_execution_20250522",
    "code_execution_20250825",
    "code_execution_20260120",
    "code_execution_20260521",
    "mcp_toolset",
    "tool_search_tool_bm25",
    "tool_search_tool_bm25_20251119",
    "tool_search_tool_regex",
    "tool_search_tool_regex_20251119",
    "web_fetch_20250910",
    "web_fetch_20260209",
    "web_fetch_20260309",
    "web_fetch_20260318",
    "web_search_20250305",
    "web_search_20260209",
    "web_search_20260318",
)
SCREEN_TOOLS = (
    "browser_toolset_20260801",
    "computer_20241022",
    "computer_20250124",
    "computer_20251124",
    "computer_toolset_20260801",
)
SERVER_BLOCKS = (
    "advisor_tool_result",
    "bash_code_execution_tool_result",
    "code_execution_tool_result",
    "fallback",
    "mcp_tool_listing",
    "mcp_tool_result",
    "mcp_tool_use",
    "server_tool_use",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "web_fetch_tool_result",
    "web_search_tool_result",
)
"""Blocks about the work of Anthropic's servers."""


def _of_tools(tools: str) -> Iterator[tuple[str, Rule]]:
    """Return the rules for the tools at the path `tools`."""
    yield from ((f"{tools}.type={each}", _NO_SERVERS) for each in SERVER_TOOLS)
    yield from ((f"{tools}.type={each}", _NO_SCREEN) for each in SCREEN_TOOLS)
    yield f"{tools}.type=*", Ignored("this type of tool is unknown, so the model does not get it")
    yield f"{tools}.allowed_callers", Ignored("only the model calls tools", nothing('["direct"]'))
    yield f"{tools}.cache_control", _CACHED
    yield f"{tools}.defer_loading", Ignored("all tools are always in the prompt", nothing("false"))
    yield f"{tools}.eager_input_streaming", Ignored("the input of tools is always streamed")
    yield f"{tools}.input_examples", Ignored("examples are not passed to models")
    yield (
        f"{tools}.max_characters",
        Ignored("the client runs the editor and can shorten its output"),
    )


def _of_texts(blocks: str) -> Iterator[tuple[str, Rule]]:
    """Return the rules for texts, documents and search results at the path `blocks`."""
    yield f"{blocks}.cache_control", _CACHED
    yield f"{blocks}.citations", _UNCITED


def _of_documents(blocks: str) -> Iterator[tuple[str, Rule]]:
    yield from _of_texts(blocks)
    yield from _of_texts(f"{blocks}.source.content[]")
    yield f"{blocks}.source.content[].type=image", _NO_IMAGES
    yield f"{blocks}.source.type=url", _NO_LINKS
    yield f"{blocks}.transformations", _AS_IT_IS
    yield f"{blocks}.source.type=file", _NO_FILES


def _of_blocks() -> Iterator[tuple[str, Rule]]:
    yield from _of_documents(_BLOCKS)
    yield from _of_documents(_INNER)
    yield from _of_texts(f"{_INNER}.content[]")
    yield f"{_INNER}.content[].type=image", _NO_IMAGES
    yield from ((f"{_BLOCKS}.type={each}", _ELSEWHERE) for each in SERVER_BLOCKS)
    yield f"{_BLOCKS}.type=container_upload", _NO_FILES
    yield (
        f"{_BLOCKS}.is_error",
        Ignored("models see only the content of a tool's result", nothing("false")),
    )
    yield f"{_BLOCKS}.toolset_name", _NO_SCREEN
    yield f"{_INNER}.type=browser_state", _NO_SCREEN
    for changes in (_BLOCKS, f"{_BLOCKS}.tool_changes[]"):
        yield from _of_tools(f"{changes}.{_DEFINITION}")
    yield f"{_BLOCKS}.tool_changes[].cache_control", _CACHED


MESSAGES: Mapping[str, Rule] = {
    "billing_policy": Ignored("nothing is billed"),
    "cache_control": _CACHED,
    "container": Ignored("tools that run in containers are not supported"),
    "diagnostics": Ignored("there are no diagnostics"),
    "fallback_credit_token": Ignored("nothing is billed"),
    "fallbacks": Ignored("only the requested model answers"),
    "inference_geo": Ignored("requests run in this fleet, wherever it is"),
    "mcp_servers": Ignored("MCP servers are not called"),
    "metadata": Ignored("requests are not counted by user"),
    "speed": Ignored("there is only one speed", nothing('"standard"')),
    "user_profile_id": Ignored("there are no user profiles"),
    "workspace_id": Ignored("there are no workspaces"),
    "context_management.edits[].type=compact_20260112": Ignored(
        "a conversation is summarized only if a request asks for it with `compaction`"
    ),
    "messages[].output_config": Ignored("the effort of the request as a whole is used"),
    "output_config.task_budget": Ignored("`max_tokens` limits the answer"),
    "system[].cache_control": _CACHED,
    "system[].citations": _UNCITED,
    "thinking.block_binding": Ignored("thinking is not bound to a conversation"),
    "thinking.budget_tokens": Ignored(
        "thinking has no budget of its own: it counts against `max_tokens`"
    ),
    **dict(_of_blocks()),
    **dict(_of_tools("tools[]")),
}
