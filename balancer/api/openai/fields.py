"""Fields of OpenAI's requests without effect: ignored and reported, or refused by name.

The supported fields are those of the types in `requests`, `embeddings` and `rerank`.
"""

from collections.abc import Mapping

from ..fields.field_table import Ignored, Refused, Rule, nothing

_NO_OTHER_MEDIA = "answers are text"
ONLY_TEXT = Refused("only text is passed to models")
ONLY_FUNCTIONS = "only functions are passed to models"
NO_REFUSALS = Ignored("models are not told of refusals")
CACHE_BREAKPOINT = Ignored("prefixes are shared anywhere")

HINTS: Mapping[str, Rule] = {
    "metadata": Ignored("nothing is stored that it could label"),
    "prompt_cache_options": Ignored("prefixes are shared without being asked"),
    "prompt_cache_retention": Ignored("the cache evicts what was not used for longest"),
    "safety_identifier": Ignored("no provider watches users here"),
    "store": Ignored("chats and completions are not stored", nothing("false")),
    "user": Ignored("requests are not told apart by users"),
}
"""Fields of chats and completions that are ignored."""

STREAM_HINTS: Mapping[str, Rule] = {
    "stream_options.include_obfuscation": Ignored(
        "streams are not padded against observers", nothing("false")
    ),
}

SERVERS: Mapping[str, Rule] = {
    "cache_prompt": Ignored("prefixes are always shared", nothing("true")),
    "id_slot": Ignored("the agent with most free slots is chosen", nothing("-1")),
    "skip_special_tokens": Ignored("control tokens are never told", nothing("true")),
}
"""Fields of vLLM and llama-server that are ignored."""

CHAT: Mapping[str, Rule] = {
    **HINTS,
    **STREAM_HINTS,
    **SERVERS,
    "audio": Refused(_NO_OTHER_MEDIA),
    "function_call": Refused("it is deprecated; `tool_choice` takes its place"),
    "functions": Refused("it is deprecated; `tools` take its place"),
    "modalities": Refused(_NO_OTHER_MEDIA, nothing('["text"]')),
    "moderation": Refused("nothing is moderated here"),
    "prediction": Refused("predicted outputs are not used"),
    "web_search_options": Refused("no search is made here"),
    "messages[].annotations": Ignored("models are not told what an answer cited"),
    "messages[].audio": Refused(_NO_OTHER_MEDIA),
    "messages[].refusal": NO_REFUSALS,
    "messages[].function_call": Refused("it is deprecated; `tool_calls` take its place"),
    "messages[].role=function": Refused("it is deprecated; the role `tool` takes its place"),
    "messages[].content[].prompt_cache_breakpoint": CACHE_BREAKPOINT,
    "messages[].content[].type=file": ONLY_TEXT,
    "messages[].content[].image_url.detail": Ignored(
        "pictures are scaled as the model wants them", nothing('"auto"')
    ),
    "messages[].content[].type=refusal": NO_REFUSALS,
    "messages[].content[].type=*": ONLY_TEXT,
    "messages[].tool_calls[].type=custom": Refused(ONLY_FUNCTIONS),
    "tool_choice.type=custom": Refused(ONLY_FUNCTIONS),
    "tools[].type=custom": Ignored(ONLY_FUNCTIONS),
    "tools[].type=*": Ignored(ONLY_FUNCTIONS),
}

CHAT_KINDS = {"messages[].tool_calls[]": ["function"], "tools[]": ["function"]}
"""Kinds of objects that agents read."""

COMPLETION: Mapping[str, Rule] = {**HINTS, **STREAM_HINTS, **SERVERS}

EMBEDDINGS: Mapping[str, Rule] = {"user": HINTS["user"]}

RERANK: Mapping[str, Rule] = {
    "user": HINTS["user"],
    "max_chunks_per_doc": Ignored("documents are not cut into chunks"),
    "max_tokens_per_doc": Ignored("documents are not cut"),
    "priority": Ignored("there are no priorities among rankings"),
    "rank_fields": Refused("documents are texts, or objects with a `text`"),
    "truncation": Ignored("documents that are too long are refused", nothing("false")),
}
