"""Fields of Ollama's requests without effect: ignored and reported, or refused by name.

The supported fields are the fields of the types in `requests` and `embeddings`.
"""

from collections.abc import Mapping

from ..fields.field_table import Ignored, Refused, Rule, nothing

_DRAWS_NOTHING = Refused("models answer with text", nothing("0"))
_LOADED_BEFORE = Ignored("the desired state says how models are loaded")

_LOADING = (
    *("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "numa", "low_vram", "f16_kv"),
    *("use_mmap", "use_mlock", "logits_all", "vocab_only", "embedding_only"),
)

COMMON: Mapping[str, Rule] = {
    "keep_alive": Ignored("the desired state says how long models stay loaded"),
    **{f"options.{name}": _LOADED_BEFORE for name in _LOADING},
}
"""Fields that all calls of a model have."""

_ANSWERS: Mapping[str, Rule] = {
    **COMMON,
    "options.num_keep": Ignored("a full context is never shifted", nothing("0", "4")),
    "options.penalize_newline": Ignored(
        "newlines are penalised like other tokens", nothing("true")
    ),
    "options.tfs_z": Ignored("tail free sampling is not supported", nothing("1", "1.0")),
    "shift": Ignored("an answer ends when the context is full", nothing("false")),
    "truncate": Ignored("a prompt that is too long is refused", nothing("false")),
}

CHAT: Mapping[str, Rule] = _ANSWERS

GENERATE: Mapping[str, Rule] = {
    **_ANSWERS,
    "context": Refused("send a conversation to `/api/chat`"),
    "height": _DRAWS_NOTHING,
    "steps": _DRAWS_NOTHING,
    "template": Refused("the model's own chat template is used", nothing('""')),
    "width": _DRAWS_NOTHING,
}

EMBED: Mapping[str, Rule] = COMMON

EMBEDDINGS: Mapping[str, Rule] = {
    **COMMON,
    "truncate": Ignored("a prompt that is too long is refused", nothing("false")),
}

SHOW: Mapping[str, Rule] = {
    "options": Ignored("this call generates nothing"),
    "system": Ignored("this call generates nothing", nothing('""')),
    "template": Ignored("this call generates nothing", nothing('""')),
    "verbose": Ignored("all known facts are always sent"),
}
