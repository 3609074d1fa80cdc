"""Fields of vLLM and llama-server beyond OpenAI's, as far as the balancer supports them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from .....shared.errors import InvalidRequest
from .....shared.inference import (
    MAX_GRAMMAR,
    Grammar,
    GrammarText,
    JsonSchemaGrammar,
    RegexGrammar,
    text_grammar,
)
from .....shared.inference.request import TruncatePromptTokens
from .....shared.sampling import (
    SAMPLER_ORDER,
    AnyStopStrings,
    RepeatPenalty,
    SamplingChoices,
    sampling_fields,
)
from .....shared.strict import STRICT, ListOf
from .....shared.validation import echo
from ...common.body_fields import FieldNames
from .formats import ANY_OBJECT

MAX_ALTERNATIVES = 1024
"""Maximum texts in a list of choices. The answer is one of the texts."""

JsonSchema = dict[str, Any] | str
"""A schema, as an object or as JSON text."""

Alternatives = Annotated[
    ListOf[Annotated[str, StringConstraints(min_length=1, max_length=1024)]],
    Field(min_length=1, max_length=MAX_ALTERNATIVES),
]

_META = frozenset("\\.+*?()|[]{}^$#&-~")


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutputs:
    """vLLM's field `structured_outputs`, with exactly one of these constraints."""

    __pydantic_config__ = STRICT

    json: JsonSchema | None = None
    json_object: bool | None = None
    regex: GrammarText | None = None
    grammar: GrammarText | None = None
    choice: Alternatives | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guided(SamplingChoices):
    """Constraints of vLLM (`guided_…` are older names), SGLang and llama-server.

    If `grammar` is a text, it is in GBNF or Lark; so is `ebnf`. If `grammar` is an object, it has
    the form of the native API. A `top_k` of -1 keeps all tokens. With llama-server's
    `return_progress` a stream says how much of the prompt was read.
    """

    __pydantic_config__ = STRICT

    stop: AnyStopStrings = ()
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    grammar: GrammarText | Grammar | None = None
    json_schema: JsonSchema | None = None
    regex: GrammarText | None = None
    ebnf: GrammarText | None = None
    guided_json: JsonSchema | None = None
    guided_regex: GrammarText | None = None
    guided_grammar: GrammarText | None = None
    guided_choice: Alternatives | None = None
    structured_outputs: StructuredOutputs | None = None
    truncate_prompt_tokens: TruncatePromptTokens | None = None
    return_progress: bool = False

    def grammars(self) -> Iterator[tuple[str, Grammar]]:
        """Yield the grammars that the answer must match, by field. Raises `InvalidRequest`."""
        if self.grammar is not None:
            grammar = self.grammar
            yield "grammar", text_grammar(grammar) if isinstance(grammar, str) else grammar
        if self.json_schema is not None:
            whole = _schema(self.json_schema, "json_schema")
            yield "json_schema", JsonSchemaGrammar(type="json_schema", schema=whole)
        if self.regex is not None:
            yield "regex", RegexGrammar(type="regex", pattern=self.regex)
        if self.ebnf is not None:
            yield "ebnf", text_grammar(self.ebnf)
        yield from _grammars(
            "guided_", self.guided_json, self.guided_regex, self.guided_grammar, self.guided_choice
        )
        if (outputs := self.structured_outputs) is not None:
            name = "structured_outputs."
            yield from _grammars(name, outputs.json, outputs.regex, outputs.grammar, outputs.choice)
            if outputs.json_object:
                schema = JsonSchemaGrammar(type="json_schema", schema=ANY_OBJECT)
                yield f"{name}json_object", schema

    def neutral(self) -> dict[str, Any]:
        """Return the neutral fields except the grammar."""
        return {
            **sampling_fields(self),
            "top_k": None if self.top_k is None else max(0, self.top_k),
            "truncate_prompt_tokens": self.truncate_prompt_tokens,
        }

    def names(
        self,
        found: list[tuple[str, Grammar]],
        otherwise: FieldNames,
        *,
        also: Mapping[str, str] = MappingProxyType({}),
    ) -> FieldNames:
        """Return the field names for errors about the grammar, if the grammar came from this
        class.
        """
        name = found[0][0] if found else ""
        is_ours = name == "grammar" and not isinstance(self.grammar, str)
        if is_ours or name in ("", "response_format", "text.format"):
            return otherwise
        parts = ("grammar.schema", "grammar.grammar", "grammar.pattern", "grammar")
        return FieldNames({**also, **dict.fromkeys(parts, name)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerExtras(Guided):
    """Fields of vLLM and llama-server in chats and completions.

    An `n_predict` of -1 means no limit, as in llama-server.
    """

    __pydantic_config__ = STRICT

    repetition_penalty: RepeatPenalty | None = None
    n_predict: Annotated[int, Field(ge=-1, lt=2**31)] | None = None


_TEXTS = (
    *("grammar", "json_schema", "regex", "ebnf"),
    *("guided_json", "guided_regex", "guided_grammar"),
)
"""Constraints that may be texts."""

NEVER = -100.0
"""The bias of a token that must not be chosen."""


def plain_extras(body: dict[str, Any], *, leaves_out: Sequence[str] = ()) -> dict[str, Any]:
    """Return `body` with the fields in the form of this balancer's types.

    Constraints that are empty texts are omitted, pairs of biases become a map, and `samplers` get
    this balancer's names, without the samplers in `leaves_out`. Raises `InvalidRequest`.
    """
    given = {name: value for name, value in body.items() if value != "" or name not in _TEXTS}
    if isinstance(biases := given.get("logit_bias"), list):
        given["logit_bias"] = dict(_bias(place, each) for place, each in enumerate(biases))
    return _with_samplers(given, leaves_out)


def _bias(place: int, pair: object) -> tuple[str, object]:
    match pair:
        case [int() | float() as token, bias] if int(token) == token:
            return str(int(token)), NEVER if bias is False else bias
    field = f"logit_bias[{place}]"
    raise InvalidRequest(
        f"`{field}` must be a token id and its bias, such as [15043, -1.5]", field=field
    )


MAX_SAMPLERS = 64
"""Maximum entries of `samplers`, including entries that are omitted."""

_LETTERS: Mapping[str, str] = {
    "e": "penalties",
    "d": "dry",
    "s": "top_n_sigma",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "m": "min_p",
    "x": "xtc",
    "t": "temperature",
    "i": "infill",
    "a": "adaptive_p",
}
"""llama-server's names of samplers in one letter."""

_OTHER_NAMES: Mapping[str, str] = {
    "typical_p": "typ_p",
    "typical": "typ_p",
    "typ": "typ_p",
    "temp": "temperature",
    "nucleus": "top_p",
}

_LACKING: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    "tfs_z": ("tfs_z", lambda z: z >= 1),
    "top_a": ("top_a", lambda a: a <= 0),
}
"""Unsupported samplers: the field that sets each, and the values that turn it off."""


def _with_samplers(body: dict[str, Any], leaves_out: Sequence[str]) -> dict[str, Any]:
    """Return `body` with this balancer's names of `samplers`.

    An unsupported sampler is omitted if the request does not turn it on, and so are the samplers
    in `leaves_out`. llama-server's own order of all samplers is omitted. Raises `InvalidRequest`
    for any other unknown sampler.
    """
    given = body.get("samplers")
    if isinstance(given, str):
        given = [_LETTERS.get(letter, letter) for letter in given]
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        return body
    if len(given) > MAX_SAMPLERS:
        raise InvalidRequest(f"`samplers` has more than {MAX_SAMPLERS} entries", field="samplers")
    plain, names = {**body}, []
    for place, name in enumerate(given):
        name = name.replace("-", "_")
        name = _OTHER_NAMES.get(name, name)
        if name in SAMPLER_ORDER:
            names.append(name)
        elif name not in leaves_out and name != "mirostat":
            _check_idle(name, f"samplers[{place}]", body)
    usual = [name for name in SAMPLER_ORDER if name != "adaptive_p"]
    is_usual = names == [*SAMPLER_ORDER] or (names == usual and not body.get("adaptive_target"))
    plain["samplers"] = [] if is_usual else [*dict.fromkeys(names)]
    return plain


def _check_idle(name: str, place: str, body: Mapping[str, Any]) -> None:
    field, is_idle = _LACKING.get(name, ("", None))
    value = body.get(field)
    if is_idle is None:
        raise InvalidRequest(
            f"`{place}`: unknown sampler {echo(name)}; the samplers are {', '.join(SAMPLER_ORDER)}",
            field=place,
        )
    if isinstance(value, int | float) and not is_idle(value):
        raise InvalidRequest(f"`{field}`: there is no sampler `{name}` here", field=field)


def neutral_seed(seed: int | None, choice: int = 0) -> int | None:
    """Return the neutral seed of the choice with this number.

    A negative seed means a random seed.
    """
    return None if seed is None or seed < 0 else (seed + choice) % 2**32


def the_only(found: list[tuple[str, Grammar]]) -> Grammar | None:
    """Return the only grammar of the answer. Raises `InvalidRequest` if several differ.

    Some clients send the same grammar in two fields, for servers of different age.
    """
    if not found:
        return None
    first, grammar = found[0]
    if (other := next((name for name, each in found if each != grammar), None)) is not None:
        raise InvalidRequest(f"give only one of `{first}` and `{other}`", field=first)
    return grammar


def either(first: str, one: Any, second: str, other: Any) -> Any:
    """Return the value of the given field. Raises `InvalidRequest` if both fields are given."""
    if one is not None and other is not None:
        raise InvalidRequest(f"give only one of `{first}` and `{second}`", field=first)
    return other if one is None else one


def _grammars(
    prefix: str,
    schema: JsonSchema | None,
    regex: str | None,
    grammar: str | None,
    choice: tuple[str, ...] | None,
) -> Iterator[tuple[str, Grammar]]:
    if schema is not None:
        name = f"{prefix}json"
        yield name, JsonSchemaGrammar(type="json_schema", schema=_schema(schema, name))
    if regex is not None:
        yield f"{prefix}regex", RegexGrammar(type="regex", pattern=regex)
    if grammar is not None:
        yield f"{prefix}grammar", text_grammar(grammar)
    if choice is not None:
        yield f"{prefix}choice", _one_of(choice, f"{prefix}choice")


def _schema(schema: JsonSchema, name: str) -> dict[str, Any]:
    if isinstance(schema, dict):
        return schema
    try:
        read = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"`{name}` is not valid JSON: {error}", field=name) from error
    if not isinstance(read, dict):
        raise InvalidRequest(f"`{name}` must be a JSON object", field=name)
    return read


def _one_of(texts: tuple[str, ...], name: str) -> RegexGrammar:
    pattern = "|".join(
        "".join(f"\\{each}" if each in _META else each for each in text) for text in texts
    )
    if len(pattern) > MAX_GRAMMAR:
        raise InvalidRequest(
            f"`{name}`: all texts together must have at most {MAX_GRAMMAR} characters", field=name
        )
    return RegexGrammar(type="regex", pattern=pattern)
