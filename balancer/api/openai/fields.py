"""Fields of OpenAI's requests without effect: ignored and reported, or refused by name.

The supported fields are those of the types in `requests`, `embeddings` and `rerank`.
"""

from collections.abc import Mapping

from ..fields.field_table import Ignored, Refused, Rule, nothing

_NO_OTHER_MEDIA = "answers are text"
NO_FILES = Refused("files are not read")
NO_OTHER_PARTS = Refused("only text, pictures and sounds are passed to models")
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

_ONE_BY_ONE = "tokens are chosen one by one"
_IN_PLACE = "reasoning is told apart from content"

SERVERS_REFUSED: Mapping[str, Rule] = {
    "custom_logit_processor": Refused("no code of clients is run"),
    "length_penalty": Refused(_ONE_BY_ONE, nothing("1", "1.0")),
    "logits_processors": Refused("no code of clients is run"),
    "lora": Refused('`model: "base:adapter"` chooses an adapter'),
    "n_probs": Refused("`logprobs` asks for them", nothing("0")),
    "no_stop_trim": Refused("`include_stop_str_in_output` says so", nothing("false")),
    "stop_regex": Refused("`stop` takes texts"),
    "structural_tag": Refused("`tools` and grammars say what an answer is made of"),
    "structured_outputs.structural_tag": Refused(
        "`tools` and grammars say what an answer is made of"
    ),
    "t_max_predict_ms": Refused("`max_tokens` bounds an answer", nothing("0")),
    "use_beam_search": Refused(_ONE_BY_ONE, nothing("false")),
}
"""Fields of vLLM, SGLang and llama-server without which an answer would be another."""

CHAT: Mapping[str, Rule] = {
    **HINTS,
    **STREAM_HINTS,
    **SERVERS,
    **SERVERS_REFUSED,
    "add_special_tokens": Refused("the model's template writes them", nothing("false")),
    "audio": Refused(_NO_OTHER_MEDIA),
    "chat_template": Refused("the model's own template is used"),
    "documents": Refused("`chat_template_kwargs` hands them to the template"),
    "echo": Refused("`continue_final_message` continues a message", nothing("false")),
    "include_reasoning": Refused(_IN_PLACE, nothing("true")),
    "mm_processor_kwargs": Refused("pictures are scaled as the model wants them"),
    "prompt_logprobs": Refused("`/v1/completions` has them, with `echo` and `logprobs`"),
    "reasoning_format": Refused(_IN_PLACE, nothing('"auto"', '"deepseek"')),
    "separate_reasoning": Refused(_IN_PLACE, nothing("true")),
    "modalities": Refused(_NO_OTHER_MEDIA, nothing('["text"]')),
    "moderation": Refused("nothing is moderated here"),
    "prediction": Ignored("the answer is the same, and no sooner there"),
    "web_search_options": Refused("no search is made here"),
    "messages[].annotations": Ignored("models are not told what an answer cited"),
    "messages[].audio": Refused(_NO_OTHER_MEDIA),
    "messages[].refusal": NO_REFUSALS,
    "messages[].content[].prompt_cache_breakpoint": CACHE_BREAKPOINT,
    "messages[].content[].type=file": NO_FILES,
    "messages[].content[].image_url.detail": Ignored(
        "pictures are scaled as the model wants them", nothing('"auto"')
    ),
    "messages[].content[].type=refusal": NO_REFUSALS,
    "messages[].content[].type=*": NO_OTHER_PARTS,
    "messages[].tool_calls[].type=custom": Refused(ONLY_FUNCTIONS),
    "tool_choice.type=custom": Refused(ONLY_FUNCTIONS),
    "tools[].type=custom": Ignored(ONLY_FUNCTIONS),
    "tools[].type=*": Ignored(ONLY_FUNCTIONS),
}

CHAT_KINDS = {"messages[].tool_calls[]": ["function"], "tools[]": ["function"]}
"""Kinds of objects that agents read."""

COMPLETION: Mapping[str, Rule] = {
    **HINTS,
    **STREAM_HINTS,
    **SERVERS,
    **SERVERS_REFUSED,
    "add_special_tokens": Refused("the model's tokeniser adds its own", nothing("true")),
    "prompt_logprobs": Refused("`echo` with `logprobs` tells them"),
}

EMBEDDINGS: Mapping[str, Rule] = {"user": HINTS["user"]}

RERANK: Mapping[str, Rule] = {
    "user": HINTS["user"],
    "max_chunks_per_doc": Ignored("documents are not cut into chunks"),
    "priority": Ignored("there are no priorities among rankings"),
    "rank_fields": Refused("documents are texts, or objects with a `text`"),
    "truncate_prompt_tokens": Refused("`max_tokens_per_doc` cuts documents"),
    "truncation": Ignored("documents that are too long are refused", nothing("false")),
}
