"""Sampling parameters, shared by all APIs, each with a description.

A field's `Sampler` annotation describes it. The abilities that a request needs of an agent, the
field names for upstream servers, the client library's types, the playground's form and the docs
follow from it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from .strict import STRICT, ListOf, at_most

MAX_STOP_STRINGS = 64
MAX_LOGIT_BIASES = 1024
MAX_BREAKERS = 16
MAX_STOP_TOKENS = 1024
MAX_ALLOWED_TOKENS = 65_536
MAX_BAD_WORDS = 256

DEFAULT_TEMPERATURE = 0.8
DEFAULT_TOP_P = 0.95
"""llama.cpp's defaults, used if neither the request nor the model's settings have a value."""

_TOKEN_ID = re.compile(r"\d{1,9}", re.ASCII)


def _token_id(key: str) -> str:
    if not _TOKEN_ID.fullmatch(key):
        raise ValueError("must be a token id of at most 9 digits")
    return key


def _without_empty(value: object) -> object:
    """Return one text or a list as a list without empty texts, which can end no answer."""
    texts = [value] if isinstance(value, str) else value
    return tuple(each for each in texts if each != "") if isinstance(texts, list) else value


def _read_list(value: object) -> object:
    """Parse a list that is written as JSON text, with or without its brackets."""
    if not isinstance(value, str):
        return tuple(value) if isinstance(value, list) else value
    try:
        read = json.loads(value if value.lstrip().startswith("[") else f"[{value}]")
    except (ValueError, RecursionError):
        return value
    return tuple(read)


StopString = Annotated[str, StringConstraints(min_length=1, max_length=256)]
StopStrings = Annotated[ListOf[StopString], Field(max_length=MAX_STOP_STRINGS)]
AnyStopStrings = Annotated[StopStrings, BeforeValidator(_without_empty)]
"""Stop strings as clients of other APIs send them: a single text, and empty texts, too."""
Temperature = Annotated[float, Field(ge=0, le=10)]
TopP = Annotated[float, Field(ge=0, le=1)]
TypicalP = Annotated[float, Field(gt=0, le=1)]
MinP = Annotated[float, Field(ge=0, le=1)]
Probability = Annotated[float, Field(ge=0, le=1)]
RepeatPenalty = Annotated[float, Field(gt=0, le=10)]
TokenPenalty = Annotated[float, Field(ge=-2, le=2)]
NumTokens = Annotated[int, Field(ge=0, lt=2**31)]
TopK = NumTokens
StopTokens = Annotated[ListOf[NumTokens], Field(max_length=MAX_STOP_TOKENS)]
LogitBias = Annotated[
    dict[
        Annotated[str, AfterValidator(_token_id)],
        Annotated[float, Field(ge=-100, le=100)],
    ],
    Field(max_length=MAX_LOGIT_BIASES),
    at_most(MAX_LOGIT_BIASES),
]
Breaker = Annotated[str, StringConstraints(min_length=1, max_length=40)]
AllowedTokens = Annotated[ListOf[NumTokens], Field(min_length=1, max_length=MAX_ALLOWED_TOKENS)]
BadWord = Annotated[str, StringConstraints(min_length=1, max_length=256)]
BadWords = Annotated[ListOf[BadWord], Field(max_length=MAX_BAD_WORDS)]


SamplerName = Literal[
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
    "adaptive_p",
]
"""The samplers by llama-server's names, in the default order."""

SAMPLER_ORDER: tuple[SamplerName, ...] = get_args(SamplerName)

SamplerAbility = Literal[
    "logit_bias",
    "token_limits",
    "top_k",
    "penalties",
    "llama_samplers",
    "stop_tokens",
    "ignore_eos",
]
"""The sampling abilities that an agent may lack; each stands for some of the fields."""


@dataclass(frozen=True, slots=True)
class Sampler:
    """The description of a sampling field.

    - `meaning`: its text in the docs.
    - `ability`: the ability that an agent needs for it; `None` if every agent has it.
    - `off`: the value that turns the sampler off.
    - `turns_off`: the name of that sampler in `samplers`, which is off if all its fields are.
    - `step`: the step of its input in the playground's form, which has all numeric fields.
    - `is_standard`: OpenAI's API, and so every upstream server, has it under the same name.
    """

    meaning: str
    ability: SamplerAbility | None = None
    off: float | None = None
    turns_off: SamplerName | None = None
    step: float | None = None
    is_standard: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingChoices:
    """A request's sampling parameters, under llama-server's names.

    `None` selects llama.cpp's default. `logit_bias` maps token ids (as JSON keys, so strings of
    digits) to a bias in logits, -100 to 100. A `mirostat` of 1 or 2 replaces all other filters and
    penalties.

    An answer ends before a `stop` string and before a token of `stop_token_ids`, or right after it
    with `include_stop_str_in_output`. Before the answer has `min_tokens` tokens, only a finished
    grammar and `max_tokens` can end it.
    """

    __pydantic_config__ = STRICT

    temperature: Annotated[
        Temperature | None,
        Sampler(
            "0 always takes the likeliest token", off=1, turns_off="temperature", is_standard=True
        ),
    ] = None
    top_k: Annotated[
        TopK | None,
        Sampler(
            "only this many of the likeliest tokens", "top_k", off=0, turns_off="top_k", step=1
        ),
    ] = None
    top_p: Annotated[
        TopP | None,
        Sampler(
            "only the likeliest tokens that together have this probability",
            off=1,
            turns_off="top_p",
            step=0.01,
            is_standard=True,
        ),
    ] = None
    min_p: Annotated[
        MinP | None,
        Sampler(
            "only tokens with at least this share of the likeliest token's probability",
            "top_k",
            off=0,
            turns_off="min_p",
            step=0.01,
        ),
    ] = None
    typical_p: Annotated[
        TypicalP | None,
        Sampler(
            "locally typical sampling: only the tokens of the most expected surprise that "
            "together have this probability",
            "llama_samplers",
            off=1,
            turns_off="typ_p",
            step=0.01,
        ),
    ] = None
    top_n_sigma: Annotated[
        Annotated[float, Field(ge=-1, le=100)] | None,
        Sampler(
            "only tokens within this many standard deviations of the highest logit",
            "llama_samplers",
            off=0,
            turns_off="top_n_sigma",
            step=0.1,
        ),
    ] = None
    xtc_probability: Annotated[
        Probability | None,
        Sampler(
            "the probability that XTC removes all tokens above `xtc_threshold` but the least "
            "likely of them",
            "llama_samplers",
            off=0,
            turns_off="xtc",
            step=0.01,
        ),
    ] = None
    xtc_threshold: Annotated[
        Probability | None,
        Sampler("the threshold for `xtc_probability`", "llama_samplers", step=0.01),
    ] = None
    dynatemp_range: Annotated[
        Temperature | None,
        Sampler(
            "lowers the temperature by up to this much if the model is sure, and raises it if it "
            "is not; without effect at a temperature of 0",
            "llama_samplers",
            off=0,
            turns_off="temperature",
            step=0.1,
        ),
    ] = None
    dynatemp_exponent: Annotated[
        Annotated[float, Field(ge=0, le=100)] | None,
        Sampler(
            "for `dynatemp_range`: the temperature follows this power of the uncertainty",
            "llama_samplers",
            step=0.1,
        ),
    ] = None
    adaptive_target: Annotated[
        Annotated[float, Field(ge=-1, le=1)] | None,
        Sampler(
            "the target for the probability of chosen tokens: of the tokens that the filters "
            "leave, those near it are preferred, so that the mean over the last tokens stays near "
            "it; off below 0",
            "llama_samplers",
            off=-1,
            turns_off="adaptive_p",
            step=0.01,
        ),
    ] = None
    adaptive_decay: Annotated[
        Annotated[float, Field(ge=0, le=0.99)] | None,
        Sampler(
            "the weight that the mean for `adaptive_target` keeps after each token",
            "llama_samplers",
            step=0.01,
        ),
    ] = None
    repeat_penalty: Annotated[
        RepeatPenalty | None,
        Sampler(
            "penalty on tokens that occurred, as a factor",
            "top_k",
            off=1,
            turns_off="penalties",
            step=0.01,
        ),
    ] = None
    repeat_last_n: Annotated[
        NumTokens | None,
        Sampler(
            "how many of the last tokens, the prompt's included, the three penalties cover",
            "llama_samplers",
            off=0,
            step=1,
        ),
    ] = None
    presence_penalty: Annotated[
        TokenPenalty | None,
        Sampler(
            "penalty on tokens that occurred, in logits",
            "penalties",
            off=0,
            turns_off="penalties",
            step=0.1,
            is_standard=True,
        ),
    ] = None
    frequency_penalty: Annotated[
        TokenPenalty | None,
        Sampler(
            "penalty on tokens for each time that they occurred, in logits",
            "penalties",
            off=0,
            turns_off="penalties",
            step=0.1,
            is_standard=True,
        ),
    ] = None
    dry_multiplier: Annotated[
        Annotated[float, Field(ge=0, le=100)] | None,
        Sampler(
            "DRY, a penalty on repeated runs of tokens: "
            "base ^ (length of the run less the allowed length), times this",
            "llama_samplers",
            off=0,
            turns_off="dry",
            step=0.1,
        ),
    ] = None
    dry_base: Annotated[
        Annotated[float, Field(ge=1, le=100)] | None,
        Sampler("the base of DRY", "llama_samplers", step=0.05),
    ] = None
    dry_allowed_length: Annotated[
        NumTokens | None,
        Sampler("the longest run that DRY allows", "llama_samplers", step=1),
    ] = None
    dry_penalty_last_n: Annotated[
        NumTokens | None,
        Sampler("how many of the last tokens DRY covers", "llama_samplers", step=1),
    ] = None
    dry_sequence_breakers: Annotated[
        Annotated[ListOf[Breaker], Field(max_length=MAX_BREAKERS), BeforeValidator(_read_list)]
        | None,
        Sampler('texts that end a run; by default newline, `:`, `"` and `*`', "llama_samplers"),
    ] = None
    mirostat: Annotated[
        Annotated[int, Field(ge=0, le=2)] | None,
        Sampler(
            "1 or 2: Mirostat, which keeps the surprise of each token near `mirostat_tau` bits; "
            "replaces all filters and penalties",
            "llama_samplers",
            off=0,
            step=1,
        ),
    ] = None
    mirostat_tau: Annotated[
        Annotated[float, Field(ge=0, le=100)] | None,
        Sampler("Mirostat's target surprise, in bits", "llama_samplers", step=0.1),
    ] = None
    mirostat_eta: Annotated[
        Annotated[float, Field(ge=0, le=10)] | None,
        Sampler("how fast Mirostat learns", "llama_samplers", step=0.01),
    ] = None
    samplers: Annotated[
        Annotated[ListOf[SamplerName], Field(max_length=len(SAMPLER_ORDER))],
        Sampler(
            "names of samplers: only these apply, in this order; by default all "
            "apply, in llama.cpp's order: " + ", ".join(f"`{name}`" for name in SAMPLER_ORDER),
            "llama_samplers",
        ),
    ] = ()
    logit_bias: Annotated[
        LogitBias | None,
        Sampler(
            "token ids (as strings) and the bias added to their logits",
            "logit_bias",
            is_standard=True,
        ),
    ] = None
    allowed_token_ids: Annotated[
        AllowedTokens | None,
        Sampler(
            "token ids; the answer has only these tokens, so one of them has to end it",
            "token_limits",
        ),
    ] = None
    bad_words: Annotated[
        BadWords,
        Sampler(
            "texts whose token sequence never occurs in the answer, at the beginning of a "
            "word or within one",
            "token_limits",
        ),
    ] = ()
    stop: Annotated[
        StopStrings,
        Sampler("strings; the answer ends before the first of them", is_standard=True),
    ] = ()
    stop_token_ids: Annotated[
        StopTokens,
        Sampler("token ids; the answer ends before the first of them", "stop_tokens"),
    ] = ()
    include_stop_str_in_output: Annotated[
        bool,
        Sampler(
            "the stop string or stop token that ends the answer is its last part", "stop_tokens"
        ),
    ] = False
    min_tokens: Annotated[
        NumTokens,
        Sampler(
            "an answer with fewer tokens is ended by no stop string, stop token or end token, but "
            "by a finished grammar or `max_tokens`",
            "stop_tokens",
            step=1,
        ),
    ] = 0
    ignore_eos: Annotated[
        bool,
        Sampler("generate up to `max_tokens`, past the end of the answer", "ignore_eos"),
    ] = False


def _samplers() -> Iterator[tuple[str, Sampler]]:
    for name, hint in get_type_hints(SamplingChoices, include_extras=True).items():
        for fact in getattr(hint, "__metadata__", ()):
            if isinstance(fact, Sampler):
                yield name, fact


SAMPLERS: Mapping[str, Sampler] = MappingProxyType(dict(_samplers()))
"""The sampling fields by name, in field order."""

_OPEN = SamplingChoices()


_NAMES = tuple(field.name for field in fields(SamplingChoices))
_values = attrgetter(*_NAMES)


def sampling_fields(choices: SamplingChoices) -> dict[str, Any]:
    """Return the sampling fields of `choices` by name, without its other fields."""
    return dict(zip(_NAMES, _values(choices), strict=True))


def chosen(choices: SamplingChoices) -> dict[str, Any]:
    """Return the sampling fields of `choices` whose value differs from the default."""
    given = sampling_fields(choices)
    return {name: value for name, value in given.items() if value != getattr(_OPEN, name)}


def asking(choices: SamplingChoices, ability: SamplerAbility) -> str | None:
    """Return the first field by which `choices` asks for `ability`, or `None`.

    A server may have another default than `off`, so a field set to `off` asks for its ability,
    too. Standard fields are off by default at every server, so they do not. An empty value asks
    for nothing.
    """
    return next((name for name in _FIELDS[ability] if _is_asked(choices, name)), None)


def _is_asked(choices: SamplingChoices, name: str) -> bool:
    value, sampler = getattr(choices, name), SAMPLERS[name]
    if value == getattr(_OPEN, name) or value in ((), {}):
        return False
    return not (sampler.is_standard and value == sampler.off)


_FIELDS: Mapping[SamplerAbility, tuple[str, ...]] = {
    ability: tuple(name for name, each in SAMPLERS.items() if each.ability == ability)
    for ability in get_args(SamplerAbility)
}
