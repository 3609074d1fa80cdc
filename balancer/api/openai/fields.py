"""Fields of OpenAI's requests without effect: ignored and reported, or refused by name.

The supported fields are the fields of the types in `requests`, `embeddings` and `rerank`.
"""

from collections.abc import Mapping

from ..fields.field_table import Ignored, Refused, Rule, nothing

_NO_OTHER_MEDIA = "answers are text"
NO_FILES = Refused("models cannot read files")
NO_OTHER_PARTS = Refused("only text, pictures and sounds are passed to models")
ONLY_FUNCTIONS = "only functions are passed to models"
NO_REFUSALS = Ignored("refusals are not passed to models")
CACHE_BREAKPOINT = Ignored("prefixes are cached at any place in the prompt")

HINTS: Mapping[str, Rule] = {
    "metadata": Ignored("chats and completions are not stored"),
    "prompt_cache_options": Ignored("prefixes are always cached"),
    "prompt_cache_retention": Ignored("the cache evicts the least recently used prefixes"),
    "safety_identifier": Ignored("users are not monitored"),
    "store": Ignored("chats and completions are not stored", nothing("false")),
    "user": Ignored("requests are not counted by user"),
}
"""Fields of chats and completions that are ignored."""

STREAM_HINTS: Mapping[str, Rule] = {
    "stream_options.include_obfuscation": Ignored("streams are not obfuscated", nothing("false")),
}

SERVERS: Mapping[str, Rule] = {
    "cache_prompt": Ignored("prefixes are always cached", nothing("true")),
    "id_slot": Ignored("the balancer and the agent choose the slot", nothing("-1")),
    "skip_special_tokens": Ignored("control tokens are never part of the text", nothing("true")),
}
"""Fields of vLLM and llama-server that are ignored."""

_ONE_BY_ONE = "there is no beam search"
_IN_PLACE = "reasoning is always sent apart from content"

SERVERS_REFUSED: Mapping[str, Rule] = {
    "custom_logit_processor": Refused("code of clients is never run"),
    "length_penalty": Refused(_ONE_BY_ONE, nothing("1", "1.0")),
    "logits_processors": Refused("code of clients is never run"),
    "lora": Refused('choose an adapter with `model: "base:adapter"`'),
    "n_probs": Refused("ask for probabilities with `logprobs`", nothing("0")),
    "no_stop_trim": Refused("use `include_stop_str_in_output`", nothing("false")),
    "stop_regex": Refused("use `stop`, which takes texts"),
    "structural_tag": Refused("use `tools`, a JSON Schema or a grammar"),
    "structured_outputs.structural_tag": Refused("use `tools`, a JSON Schema or a grammar"),
    "t_max_predict_ms": Refused("limit the answer with `max_tokens`", nothing("0")),
    "use_beam_search": Refused(_ONE_BY_ONE, nothing("false")),
}
"""Fields of vLLM, SGLang and llama-server that change the answer, and are refused."""

CHAT: Mapping[str, Rule] = {
    **HINTS,
    **STREAM_HINTS,
    **SERVERS,
    **SERVERS_REFUSED,
    "add_special_tokens": Refused("the chat template writes the special tokens", nothing("false")),
    "audio": Refused(_NO_OTHER_MEDIA),
    "chat_template": Refused("the model's own chat template is used"),
    "documents": Refused("pass documents to the template with `chat_template_kwargs`"),
    "echo": Refused("to continue a message, use `continue_final_message`", nothing("false")),
    "include_reasoning": Refused(_IN_PLACE, nothing("true")),
    "mm_processor_kwargs": Refused("the model decides how pictures are scaled"),
    "prompt_logprobs": Refused("use `/v1/completions` with `echo` and `logprobs`"),
    "reasoning_format": Refused(_IN_PLACE, nothing('"auto"', '"deepseek"')),
    "separate_reasoning": Refused(_IN_PLACE, nothing("true")),
    "modalities": Refused(_NO_OTHER_MEDIA, nothing('["text"]')),
    "moderation": Refused("there is no moderation"),
    "prediction": Ignored("predicted output changes neither the answer nor its speed"),
    "web_search_options": Refused("the web is never searched"),
    "messages[].annotations": Ignored("citations are not passed to models"),
    "messages[].audio": Refused(_NO_OTHER_MEDIA),
    "messages[].refusal": NO_REFUSALS,
    "messages[].content[].prompt_cache_breakpoint": CACHE_BREAKPOINT,
    "messages[].content[].type=file": NO_FILES,
    "messages[].content[].image_url.detail": Ignored(
        "the model decides how pictures are scaled", nothing('"auto"')
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
    "add_special_tokens": Refused(
        "the tokeniser always adds the model's special tokens", nothing("true")
    ),
    "prompt_logprobs": Refused("use `echo` with `logprobs`"),
}

EMBEDDINGS: Mapping[str, Rule] = {"user": HINTS["user"]}

RERANK: Mapping[str, Rule] = {
    "user": HINTS["user"],
    "max_chunks_per_doc": Ignored("documents are not split into chunks"),
    "priority": Ignored("rankings have no priorities"),
    "rank_fields": Refused("a document must be a text, or an object with a `text`"),
    "truncate_prompt_tokens": Refused("shorten documents with `max_tokens_per_doc`"),
    "truncation": Ignored("a document that is too long is refused", nothing("false")),
}
