"""Fields of `/v1/messages` without effect: ignored and reported, or refused by name.

The supported fields are those of the types in `requests`, `options` and `conversation`.
"""

from collections.abc import Iterator, Mapping

from ..fields.field_table import Ignored, Refused, Rule, nothing

_CACHED = Ignored("prefixes are cached without being asked")
_UNCITED = Ignored("models are not told what an answer cited")
_NO_SERVERS = Ignored("tools that only Anthropic's servers run are left out")
_NO_SCREEN = Ignored("tools that answer with screenshots are left out")
_NO_IMAGES = Refused("pictures are read in messages and results, not here; send a description")
_NO_LINKS = Refused(
    "no links are read but those to pictures, where the balancer runs with --media-urls; send the "
    "picture or the text itself"
)
_AS_IT_IS = Ignored("pictures are scaled as the model wants them", nothing("{}"))
_NO_FILES = Refused("files are not stored here; send their text")
_ELSEWHERE = Ignored("what another service's tools did is not told to the model")

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
"""Blocks about what Anthropic's servers did."""


def _of_tools(tools: str) -> Iterator[tuple[str, Rule]]:
    """The rules for the tools at the path `tools`."""
    yield from ((f"{tools}.type={each}", _NO_SERVERS) for each in SERVER_TOOLS)
    yield from ((f"{tools}.type={each}", _NO_SCREEN) for each in SCREEN_TOOLS)
    yield f"{tools}.type=*", Ignored("the tool's input is not known here")
    yield f"{tools}.allowed_callers", Ignored("only the model calls tools", nothing('["direct"]'))
    yield f"{tools}.cache_control", _CACHED
    yield f"{tools}.defer_loading", Ignored("all tools are in the prompt", nothing("false"))
    yield f"{tools}.eager_input_streaming", Ignored("input is streamed as it comes")
    yield f"{tools}.input_examples", Ignored("models are not told examples")
    yield f"{tools}.max_characters", Ignored("the client cuts what its editor shows")


def _of_texts(blocks: str) -> Iterator[tuple[str, Rule]]:
    """The rules for texts, documents and search results at the path `blocks`."""
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
    yield f"{_BLOCKS}.is_error", Ignored("models read the result itself", nothing("false"))
    yield f"{_BLOCKS}.toolset_name", _NO_SCREEN
    yield f"{_INNER}.type=browser_state", _NO_SCREEN
    for changes in (_BLOCKS, f"{_BLOCKS}.tool_changes[]"):
        yield from _of_tools(f"{changes}.{_DEFINITION}")
    yield f"{_BLOCKS}.tool_changes[].cache_control", _CACHED


MESSAGES: Mapping[str, Rule] = {
    "billing_policy": Ignored("nothing is billed"),
    "cache_control": _CACHED,
    "container": Ignored("tools that run in containers are left out"),
    "diagnostics": Ignored("there are none to give"),
    "fallback_credit_token": Ignored("nothing is billed"),
    "fallbacks": Ignored("the model that is asked for answers"),
    "inference_geo": Ignored("the fleet is where it is"),
    "mcp_servers": Ignored("tools of MCP servers are left out"),
    "metadata": Ignored("requests are not told apart by users"),
    "speed": Ignored("there is one speed", nothing('"standard"')),
    "user_profile_id": Ignored("there are no profiles"),
    "workspace_id": Ignored("there are no workspaces"),
    "context_management.edits[].type=compact_20260112": Ignored(
        "a conversation is summarized only where a request asks for it with `compaction`"
    ),
    "messages[].output_config": Ignored("the request's own effort counts"),
    "output_config.task_budget": Ignored("`max_tokens` is what bounds an answer"),
    "system[].cache_control": _CACHED,
    "system[].citations": _UNCITED,
    "thinking.block_binding": Ignored("thinking is not bound to a conversation"),
    "thinking.budget_tokens": Ignored("thinking counts against `max_tokens`"),
    **dict(_of_blocks()),
    **dict(_of_tools("tools[]")),
}
