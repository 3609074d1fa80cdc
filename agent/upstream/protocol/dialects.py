"""What kinds of servers call things, where OpenAI's API has no name for it.

A server is recognised by what its models are `owned_by`. What it can do is found out by trying
(`probes`); here stands what cannot be tried: the names of fields, and abilities that come with a
kind. A server of no known kind gets OpenAI's own fields only.
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

    `abilities` come with the kind. Some kinds have a name for `ignore_eos`; whether it has an
    effect is tried. `renamed`: sampling fields that it calls otherwise than we do. `has_template`:
    `chat_template_kwargs` reach the chat template. `continues`: the fields by which the answer
    goes on from the last message, where that alone does not do it. `is_counting`: chunks carry the
    counts so far when asked.
    `regex`, `gbnf` and `lark`: how these grammars are sent. `tokenizer`: whose `/tokenize` it has,
    at its root; `counter`: the path there that counts a prompt.
    `all_tokens` is the `top_k` that leaves all of them, which is 0 with us.
    `prompt_penalties`: the penalties that count the prompt as well, and so the text before a seam.
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
        """The sampling fields that it knows beyond OpenAI's, and their names here."""
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
"""A server of no known kind."""

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
    """The dialect of a server whose models are owned by `owner`."""
    return _BY_OWNER.get(owner or "", OTHER)
