"""Sampling parameters, shared by all APIs, and what there is to know of each.

A field's `Sampler` stands beside its type. From it follow what a request needs of an agent, the
names that upstream servers get, the client library's types, the playground's form and the docs.
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
"""llama.cpp's, which hold if neither the request nor the model's settings have a value."""

_TOKEN_ID = re.compile(r"\d{1,9}", re.ASCII)


def _token_id(key: str) -> str:
    if not _TOKEN_ID.fullmatch(key):
        raise ValueError("must be a token id of at most 9 digits")
    return key


def _without_empty(value: object) -> object:
    """One text, or a list, as a list without empty texts, which end nothing."""
    texts = [value] if isinstance(value, str) else value
    return tuple(each for each in texts if each != "") if isinstance(texts, list) else value


def _read_list(value: object) -> object:
    """A list that is written as JSON text, with or without its brackets."""
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
"""As programs of other APIs send them: one text alone, and empty texts, too."""
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
"""Samplers by llama-server's names, in the order in which they apply."""

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
"""What an agent may lack of the samplers; each stands for some of the fields."""


@dataclass(frozen=True, slots=True)
class Sampler:
    """What there is to know of a sampling field, beside its type.

    - `meaning`: what the docs say of it.
    - `ability`: what an agent needs to serve it. Without one, every agent does.
    - `off`: the value that turns it off.
    - `step`: that of its input in the playground's form, where all fields of numbers stand.
    - `is_standard`: OpenAI's API has it under the same name, so upstream servers do, too.
    """

    meaning: str
    ability: SamplerAbility | None = None
    off: float | None = None
    step: float | None = None
    is_standard: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingChoices:
    """A request's sampling parameters, under llama-server's names.

    `None` leaves a value to its default, which is llama.cpp's. `logit_bias` maps token ids (as
    JSON keys, so strings of digits) to a bias in logits, -100 to 100. A `mirostat` of 1 or 2 takes
    the place of all other filters and penalties.

    An answer ends before a `stop` string and before a token of `stop_token_ids`, or right after it
    with `include_stop_str_in_output`. Before it has `min_tokens` tokens neither they nor the
    model's end tokens end it; a finished grammar does, and so does `max_tokens`.
    """

    __pydantic_config__ = STRICT

    temperature: Annotated[
        Temperature | None,
        Sampler("0 always takes the likeliest token", is_standard=True),
    ] = None
    top_k: Annotated[
        TopK | None,
        Sampler("only so many of the likeliest tokens", "top_k", off=0, step=1),
    ] = None
    top_p: Annotated[
        TopP | None,
        Sampler(
            "only the likeliest tokens that have this probability together",
            off=1,
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
            step=0.01,
        ),
    ] = None
    typical_p: Annotated[
        TypicalP | None,
        Sampler(
            "locally typical sampling: only the tokens of the most expected surprise that have "
            "this probability together",
            "llama_samplers",
            off=1,
            step=0.01,
        ),
    ] = None
    top_n_sigma: Annotated[
        Annotated[float, Field(ge=-1, le=100)] | None,
        Sampler(
            "only tokens within so many standard deviations of the likeliest logit",
            "llama_samplers",
            off=0,
            step=0.1,
        ),
    ] = None
    xtc_probability: Annotated[
        Probability | None,
        Sampler(
            "with this probability, all tokens above `xtc_threshold` but the least likely of them "
            "are left out",
            "llama_samplers",
            off=0,
            step=0.01,
        ),
    ] = None
    xtc_threshold: Annotated[
        Probability | None,
        Sampler("the probability that counts for `xtc_probability`", "llama_samplers", step=0.01),
    ] = None
    dynatemp_range: Annotated[
        Temperature | None,
        Sampler(
            "the temperature is so much lower where the model is sure, and so much higher where it "
            "is not; not at a temperature of 0",
            "llama_samplers",
            off=0,
            step=0.1,
        ),
    ] = None
    dynatemp_exponent: Annotated[
        Annotated[float, Field(ge=0, le=100)] | None,
        Sampler(
            "how the temperature follows the uncertainty for `dynatemp_range`: as this power of it",
            "llama_samplers",
            step=0.1,
        ),
    ] = None
    adaptive_target: Annotated[
        Annotated[float, Field(ge=-1, le=1)] | None,
        Sampler(
            "the probability near which tokens are chosen from what the filters leave, the mean of "
            "the last tokens included; below 0 it is off",
            "llama_samplers",
            off=-1,
            step=0.01,
        ),
    ] = None
    adaptive_decay: Annotated[
        Annotated[float, Field(ge=0, le=0.99)] | None,
        Sampler(
            "how much of the mean for `adaptive_target` is left after a token",
            "llama_samplers",
            step=0.01,
        ),
    ] = None
    repeat_penalty: Annotated[
        RepeatPenalty | None,
        Sampler("penalty on tokens that were there, as a factor", "top_k", off=1, step=0.01),
    ] = None
    repeat_last_n: Annotated[
        NumTokens | None,
        Sampler(
            "over how many of the last tokens, the prompt's included, the three penalties look",
            "llama_samplers",
            off=0,
            step=1,
        ),
    ] = None
    presence_penalty: Annotated[
        TokenPenalty | None,
        Sampler(
            "penalty on tokens that were there, in logits",
            "penalties",
            off=0,
            step=0.1,
            is_standard=True,
        ),
    ] = None
    frequency_penalty: Annotated[
        TokenPenalty | None,
        Sampler(
            "penalty on tokens for each time that they were there, in logits",
            "penalties",
            off=0,
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
        Sampler("over how many of the last tokens DRY looks", "llama_samplers", step=1),
    ] = None
    dry_sequence_breakers: Annotated[
        Annotated[ListOf[Breaker], Field(max_length=MAX_BREAKERS), BeforeValidator(_read_list)]
        | None,
        Sampler(
            'texts at which a run ends; without them newline, `:`, `"` and `*`', "llama_samplers"
        ),
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
        Sampler("the surprise that Mirostat aims at, in bits", "llama_samplers", step=0.1),
    ] = None
    mirostat_eta: Annotated[
        Annotated[float, Field(ge=0, le=10)] | None,
        Sampler("how fast Mirostat learns", "llama_samplers", step=0.01),
    ] = None
    samplers: Annotated[
        Annotated[ListOf[SamplerName], Field(max_length=len(SAMPLER_ORDER))],
        Sampler(
            "names of samplers: these apply, in this order, and no others; without it all of them "
            "do, in llama.cpp's order: " + ", ".join(f"`{name}`" for name in SAMPLER_ORDER),
            "llama_samplers",
        ),
    ] = ()
    logit_bias: Annotated[
        LogitBias | None,
        Sampler(
            "token ids (as strings) and what is added to their logits",
            "logit_bias",
            is_standard=True,
        ),
    ] = None
    allowed_token_ids: Annotated[
        AllowedTokens | None,
        Sampler(
            "token ids; the answer is made of these tokens alone, so one of them has to end it",
            "token_limits",
        ),
    ] = None
    bad_words: Annotated[
        BadWords,
        Sampler(
            "texts of which the tokens never stand together in the answer, at the beginning of a "
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
"""The sampling fields by name, in their order."""

_OPEN = SamplingChoices()


_NAMES = tuple(field.name for field in fields(SamplingChoices))
_values = attrgetter(*_NAMES)


def sampling_fields(choices: SamplingChoices) -> dict[str, Any]:
    """The values that `choices` sets, by name; other fields of it are left out."""
    return dict(zip(_NAMES, _values(choices), strict=True))


def chosen(choices: SamplingChoices) -> dict[str, Any]:
    """The sampling fields of `choices` that say something: that have not the value left open."""
    given = sampling_fields(choices)
    return {name: value for name, value in given.items() if value != getattr(_OPEN, name)}


def asking(choices: SamplingChoices, ability: SamplerAbility) -> str | None:
    """The first field by which `choices` asks for `ability`, if one does.

    A server may have another default than `off`, so that is asked for as well; but for the fields
    that are standard, of which `off` is the default everywhere. What is empty asks for nothing.
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
