"""Sampling parameters, shared by all APIs."""

import re
from dataclasses import dataclass, fields
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints

from .strict import STRICT, ListOf, at_most

MAX_STOP_STRINGS = 16
MAX_LOGIT_BIASES = 1024
MAX_BREAKERS = 16
MAX_STOP_TOKENS = 1024

_TOKEN_ID = re.compile(r"\d{1,9}", re.ASCII)


def _token_id(key: str) -> str:
    if not _TOKEN_ID.fullmatch(key):
        raise ValueError("must be a token id of at most 9 digits")
    return key


StopString = Annotated[str, StringConstraints(min_length=1, max_length=256)]
StopStrings = Annotated[ListOf[StopString], Field(max_length=MAX_STOP_STRINGS)]
Temperature = Annotated[float, Field(ge=0, le=10)]
TopP = Annotated[float, Field(gt=0, le=1)]
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

    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_p: TopP | None = None
    min_p: MinP | None = None
    typical_p: TopP | None = None
    top_n_sigma: Annotated[float, Field(ge=-1, le=100)] | None = None
    xtc_probability: Probability | None = None
    xtc_threshold: Probability | None = None
    repeat_penalty: RepeatPenalty | None = None
    repeat_last_n: NumTokens | None = None
    presence_penalty: TokenPenalty | None = None
    frequency_penalty: TokenPenalty | None = None
    dry_multiplier: Annotated[float, Field(ge=0, le=100)] | None = None
    dry_base: Annotated[float, Field(ge=1, le=100)] | None = None
    dry_allowed_length: NumTokens | None = None
    dry_penalty_last_n: NumTokens | None = None
    dry_sequence_breakers: Annotated[ListOf[Breaker], Field(max_length=MAX_BREAKERS)] | None = None
    mirostat: Annotated[int, Field(ge=0, le=2)] | None = None
    mirostat_tau: Annotated[float, Field(ge=0, le=100)] | None = None
    mirostat_eta: Annotated[float, Field(ge=0, le=10)] | None = None
    logit_bias: LogitBias | None = None
    stop: StopStrings = ()
    stop_token_ids: StopTokens = ()
    include_stop_str_in_output: bool = False
    min_tokens: NumTokens = 0
    ignore_eos: bool = False


def sampling_fields(choices: SamplingChoices) -> dict[str, Any]:
    """The values that `choices` sets, by name; other fields of it are left out."""
    return {field.name: getattr(choices, field.name) for field in fields(SamplingChoices)}
