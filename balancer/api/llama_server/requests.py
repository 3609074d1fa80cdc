"""Converts the bodies of llama-server's `/completion` and `/infill` to neutral requests.

The types here define the supported fields. The rules list fields that are ignored and reported, or
refused by name. `null` is the same as an absent field.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from pydantic import Field, TypeAdapter

from ....shared.inference import GenerateRequest, PromptInput, TopLogprobs
from ....shared.strict import STRICT, ListOf
from ..common.body_fields import FieldNames
from ..common.request_checks import check_readable
from ..fields.field_table import FieldNotes, FieldTable, Ignored, Refused, Rule, nothing
from ..openai.completions.extras import Guided, neutral_seed, plain_extras, the_only
from ..openai.fields import SERVERS, SERVERS_REFUSED

ALL_TOKENS = 2**31 - 1
"""A number of last tokens that is larger than any context."""

_NO_SHIFT = Ignored("a full context is never shifted", nothing("0", "-1"))

_RULES: Mapping[str, Rule] = {
    **{name: rule for name, rule in SERVERS.items() if name != "skip_special_tokens"},
    **{name: rule for name, rule in SERVERS_REFUSED.items() if name != "n_probs"},
    "image_data": Refused("send pictures in a chat"),
    "min_keep": Refused("samplers have no minimum of tokens to keep", nothing("0", "1")),
    "n_cmpl": Refused("one request gets one answer", nothing("1")),
    "n_discard": _NO_SHIFT,
    "n_indent": Refused("the indentation of lines has no effect", nothing("0")),
    "n_keep": _NO_SHIFT,
    "penalize_nl": Ignored("newlines are penalised like other tokens", nothing("true")),
    "post_sampling_probs": Refused("probabilities are those before sampling", nothing("false")),
    "response_fields": Ignored("answers always have all fields"),
    "tfs_z": Ignored("tail free sampling is not supported", nothing("1", "1.0")),
    "timings_per_token": Ignored("only the last chunk has timings", nothing("false")),
}


_INFILL_RULES: Mapping[str, Rule] = {
    **_RULES,
    "input_extra[].time": Ignored("times are not passed to models"),
    "n_indent": Ignored("the indentation of lines has no effect", nothing("0")),
    "t_max_predict_ms": Ignored("limit the answer with `n_predict`", nothing("0")),
    "t_max_prompt_ms": Ignored("reading a prompt has no time limit", nothing("0")),
}

MAX_EXTRAS = 256
"""Maximum texts of other files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options(Guided):
    """The fields that both calls share."""

    __pydantic_config__ = STRICT

    model: str | None = None
    n_predict: Annotated[int, Field(ge=-2, lt=2**31)] = -1
    stream: bool = False
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    n_probs: TopLogprobs = 0
    return_tokens: bool = False
    repeat_last_n: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    dry_penalty_last_n: Annotated[int, Field(ge=-1, lt=2**31)] | None = None

    def request_for(self, prompt: PromptInput, suffix: str | None = None) -> GenerateRequest:
        """Return the neutral request. Raises `InvalidRequest`."""
        fields = self.neutral()
        for name in ("repeat_last_n", "dry_penalty_last_n"):
            fields[name] = ALL_TOKENS if fields[name] == -1 else fields[name]
        return GenerateRequest(
            **fields,
            prompt=prompt,
            suffix=suffix,
            model=self.model,
            stream=self.stream,
            max_tokens=self.n_predict if self.n_predict > 0 else None,
            prefill_only=self.n_predict == 0,
            seed=neutral_seed(self.seed),
            grammar=the_only([*self.grammars()]),
            logprobs=self.n_probs > 0,
            top_logprobs=self.n_probs or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _LlamaServerBody(_Options):
    __pydantic_config__ = STRICT

    prompt: PromptInput


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extra:
    """The text of another file, which the model sees before the code to complete."""

    __pydantic_config__ = STRICT

    text: str
    filename: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _InfillBody(_Options):
    """The body of `/infill`.

    `prompt` is the beginning of the line to complete, after `input_prefix`.
    """

    __pydantic_config__ = STRICT

    input_prefix: str
    input_suffix: str
    prompt: str = ""
    input_extra: Annotated[ListOf[_Extra], Field(max_length=MAX_EXTRAS)] = ()

    @property
    def before(self) -> str:
        """The text before the gap."""
        extras = (
            f"--- {each.filename or 'snippet'} ---\n{each.text}\n\n" for each in self.input_extra
        )
        return f"{''.join(extras)}{self.input_prefix}{self.prompt}"


COMPLETION_FIELDS = FieldTable(TypeAdapter(_LlamaServerBody), _RULES)
INFILL_FIELDS = FieldTable(TypeAdapter(_InfillBody), _INFILL_RULES)


@dataclass(frozen=True, slots=True)
class LlamaServerRequest:
    """A parsed body. Errors name fields by `names`."""

    request: GenerateRequest
    names: FieldNames
    has_tokens: bool
    """Whether the answer has the ids of its tokens."""
    tells_progress: bool = False


def parse_completion(body: bytes, notes: FieldNotes | None = None) -> LlamaServerRequest:
    """Parse the body of `/completion`. Raises `InvalidRequest` and `RequestTooLarge`."""
    parsed = COMPLETION_FIELDS.parsed(body, notes, prepare=plain_extras)
    return _requested(parsed, parsed.request_for(parsed.prompt), {})


def parse_infill(body: bytes, notes: FieldNotes | None = None) -> LlamaServerRequest:
    """Parse the body of `/infill`. Raises `InvalidRequest` and `RequestTooLarge`.

    The sampler `infill` is omitted, because it is not supported. Editors send it in `samplers`; in
    llama-server it ends an answer earlier.
    """
    prepare = partial(plain_extras, leaves_out=("infill",))
    parsed = INFILL_FIELDS.parsed(body, notes, prepare=prepare)
    request = parsed.request_for(parsed.before, parsed.input_suffix)
    return _requested(parsed, request, {"prompt": "input_prefix", "suffix": "input_suffix"})


def _requested(
    parsed: _Options, request: GenerateRequest, renamed: Mapping[str, str]
) -> LlamaServerRequest:
    check_readable(request)
    also = {"max_tokens": "n_predict", **renamed}
    own = FieldNames({"logprobs": "n_probs", **also})
    names = parsed.names([*parsed.grammars()], own, also=also)
    return LlamaServerRequest(
        request, names, has_tokens=parsed.return_tokens, tells_progress=parsed.return_progress
    )
