"""The abilities that a request needs of an agent, beyond plain text or messages in and text out.

An agent with an engine of its own has all abilities. An agent that forwards to another server
reports that server's abilities, so that each request goes to an agent that serves the whole
request.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal, get_args

from ..errors import NotSupported
from ..sampling import SamplerAbility, asking
from .conversation import AudioPart, ImagePart
from .grammars import GbnfGrammar, JsonSchemaGrammar, LarkGrammar, RegexGrammar
from .request import GenerateRequest

Ability = Literal[
    SamplerAbility,
    "messages",
    "vision",
    "audio",
    "prompt",
    "token_ids",
    "suffix",
    "logprobs",
    "prompt_logprobs",
    "tools",
    "forced_calls",
    "json_schema",
    "gbnf",
    "lark",
    "regex",
    "thinking",
    "template_options",
    "continue_final_message",
    "n_discard",
    "truncate_prompt",
    "prefill_only",
    "prompt_store",
    "tokenize",
    "detokenize",
    "count_tokens",
]

ABILITIES: frozenset[Ability] = frozenset(get_args(Ability))
TOKENIZER: frozenset[Ability] = frozenset(("tokenize", "detokenize", "count_tokens"))
"""Abilities of the tokenizer queries, which generate nothing."""


def _sets(*names: str) -> Callable[[GenerateRequest], str | None]:
    """Return a function that names the first of these fields with a true value."""
    return lambda request: next((name for name in names if getattr(request, name)), None)


def _gives(*names: str) -> Callable[[GenerateRequest], str | None]:
    """Return a function that names the first of these fields with a value, zero included."""
    return lambda request: next((n for n in names if getattr(request, n) is not None), None)


def _grammar(kind: type) -> Callable[[GenerateRequest], str | None]:
    return lambda request: "grammar" if isinstance(request.grammar, kind) else None


def _tools(request: GenerateRequest) -> str | None:
    return "tools" if request.tools and request.tool_choice != "none" else None


def _forced(request: GenerateRequest) -> str | None:
    is_free = request.tool_choice in (None, "auto", "none")
    return "tool_choice" if request.tools and not is_free else None


def _first(kind: type) -> Callable[[GenerateRequest], str | None]:
    """Return a function that names the field of the first media part of this kind."""
    return lambda request: next(
        (field for field, part in request.media if isinstance(part, kind)), None
    )


def _template(request: GenerateRequest) -> str | None:
    if request.chat_template_kwargs:
        return "chat_template_kwargs"
    is_asked = request.messages is not None and not request.add_generation_prompt
    return "add_generation_prompt" if is_asked else None


_NEEDS: dict[Ability, Callable[[GenerateRequest], str | None]] = {
    "messages": _gives("messages"),
    "vision": _first(ImagePart),
    "audio": _first(AudioPart),
    "prompt": lambda request: "prompt" if isinstance(request.prompt, str) else None,
    "token_ids": lambda request: "prompt" if isinstance(request.prompt, tuple) else None,
    "suffix": _gives("suffix"),
    "logprobs": _sets("logprobs"),
    "prompt_logprobs": _sets("prompt_logprobs"),
    "tools": _tools,
    "forced_calls": _forced,
    "json_schema": _grammar(JsonSchemaGrammar),
    "gbnf": _grammar(GbnfGrammar),
    "lark": _grammar(LarkGrammar),
    "regex": _grammar(RegexGrammar),
    "thinking": _gives("thinking"),
    "template_options": _template,
    "continue_final_message": _sets("continue_final_message"),
    **{each: partial(asking, ability=each) for each in get_args(SamplerAbility)},
    "n_discard": _gives("n_discard"),
    "truncate_prompt": _gives("truncate_prompt_tokens"),
    "prefill_only": _sets("prefill_only"),
    "prompt_store": _sets("save_cache", "cache_key"),
}
"""For each ability, a function that returns the field by which a request asks for it."""


def needs_of(request: GenerateRequest, among: frozenset[Ability] = ABILITIES) -> frozenset[Ability]:
    """Return the abilities of `among` that an agent needs to serve the whole of `request`."""
    asked = [each for each in among if each in _NEEDS]
    return frozenset([each for each in asked if _NEEDS[each](request) is not None])


def field_of(request: GenerateRequest, ability: Ability) -> str:
    """Return the field by which `request` asks for `ability`, which it needs."""
    return _NEEDS[ability](request) or ability


def lacking(
    request: GenerateRequest, abilities: Iterable[Ability], who: str
) -> NotSupported | None:
    """Return an error if `request` needs other abilities than `abilities`, else `None`.

    `who` is the subject and the verb of the message, such as `this server cannot`.
    """
    missing = needs_of(request, ABILITIES.difference(abilities))
    if not missing:
        return None
    field = min(field_of(request, ability) for ability in missing)
    return NotSupported(f"`{field}`: {who} serve it", field=field)
