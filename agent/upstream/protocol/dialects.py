"""The names that kinds of servers use for features that OpenAI's API does not have.

A server is recognised by the owner (`owned_by`) of its models. Its abilities are tested
(`probes`). This module has the names of fields, and abilities that belong to a kind, since these
cannot be tested. A server of an unknown kind gets OpenAI's fields only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ....shared.inference.abilities import Ability
from ....shared.sampling import SAMPLERS

Regex = Literal["structured_outputs", "regex"]
Gbnf = Literal["structured_outputs", "grammar"]
Lark = Literal["structured_outputs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One kind of server.

    `abilities` belong to the kind. `has_ignore_eos`: the kind has the field; a probe tests if the
    field has an effect. `renamed`: sampling fields that have another name in this kind.
    `has_template`: `chat_template_kwargs` reach the chat template. `continues`: the fields needed
    to continue the last message. `is_counting`: chunks can carry the counts so far. `regex`,
    `gbnf` and `lark`: how these grammars are sent. `tokenizer`: the server whose `/tokenize` this
    kind has, at its root. `counter`: the path at the root that counts a prompt. `all_tokens`: the
    `top_k` that keeps all tokens, which is 0 in Arriero. `prompt_penalties`: the penalties that
    include the prompt, and so the text before a continuation.
    """

    kind: str
    abilities: frozenset[Ability] = frozenset()
    has_ignore_eos: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    has_template: bool = False
    continues: Mapping[str, bool] = field(default_factory=dict)
    is_counting: bool = False
    regex: Regex | None = None
    gbnf: Gbnf | None = None
    lark: Lark | None = None
    tokenizer: Literal["vllm", "llama"] | None = None
    counter: str | None = None
    all_tokens: int = 0
    prompt_penalties: frozenset[str] = frozenset()

    @property
    def sampling(self) -> Mapping[str, str]:
        """The kind's sampling fields beyond OpenAI's: Arriero's name, and the server's name."""
        known = self.abilities | ({"ignore_eos"} if self.has_ignore_eos else frozenset())
        return {
            name: self.renamed.get(name, name)
            for name, sampler in SAMPLERS.items()
            if sampler.ability in known and not sampler.is_standard
        }


_GO_ON = {"add_generation_prompt": False, "continue_final_message": True}
_PENALTIES = frozenset(("presence_penalty", "frequency_penalty", "repeat_penalty"))

_SAMPLING: frozenset[Ability] = frozenset(("top_k", "penalties", "logit_bias"))
_TEMPLATE: frozenset[Ability] = frozenset(("thinking", "template_options"))

_VLLMS: frozenset[Ability] = frozenset(
    ("stop_tokens", "token_limits", "continue_final_message", "regex", "truncate_prompt")
)

OTHER = Dialect(kind="openai", abilities=frozenset(("penalties",)))
"""A server of an unknown kind."""

VLLM = Dialect(
    kind="vllm",
    has_ignore_eos=True,
    renamed={"repeat_penalty": "repetition_penalty"},
    has_template=True,
    continues=_GO_ON,
    is_counting=True,
    regex="structured_outputs",
    tokenizer="vllm",
    counter="/tokenize",
    abilities=_SAMPLING | _TEMPLATE | _VLLMS,
    prompt_penalties=frozenset(("repeat_penalty",)),
)
SGLANG = Dialect(
    kind="sglang",
    has_ignore_eos=True,
    renamed={"repeat_penalty": "repetition_penalty"},
    has_template=True,
    continues=_GO_ON,
    is_counting=True,
    regex="regex",
    all_tokens=-1,
    abilities=_SAMPLING | _TEMPLATE | {"regex"},
)
LLAMA_SERVER = Dialect(
    kind="llama-server",
    has_ignore_eos=True,
    has_template=True,
    continues=_GO_ON,
    gbnf="grammar",
    tokenizer="llama",
    abilities=_SAMPLING | _TEMPLATE | {"llama_samplers", "gbnf"},
    prompt_penalties=_PENALTIES,
)
ARRIERO = Dialect(
    kind="arriero",
    has_ignore_eos=True,
    has_template=True,
    continues={"continue_final_message": True},
    is_counting=True,
    regex="structured_outputs",
    gbnf="structured_outputs",
    lark="structured_outputs",
    tokenizer="vllm",
    counter="/api/v1/count_tokens",
    abilities=VLLM.abilities | {"llama_samplers", "gbnf", "lark", "suffix"},
    prompt_penalties=_PENALTIES,
)
OLLAMA = Dialect(kind="ollama", abilities=frozenset(("penalties",)))
LM_STUDIO = Dialect(
    kind="lm-studio",
    abilities=frozenset(("top_k", "penalties")),
)

KINDS = (VLLM, SGLANG, LLAMA_SERVER, LM_STUDIO, OLLAMA, ARRIERO, OTHER)
"""All kinds of servers."""

_BY_OWNER = {
    "vllm": VLLM,
    "sglang": SGLANG,
    "llamacpp": LLAMA_SERVER,
    "arriero": ARRIERO,
    "library": OLLAMA,
    "organization_owner": LM_STUDIO,
    "organization-owner": LM_STUDIO,
}


def dialect_of(owner: str | None) -> Dialect:
    """Return the dialect of a server whose models are owned by `owner`."""
    return _BY_OWNER.get(owner or "", OTHER)
