"""The neutral request, whatever API the client speaks."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, ValidationInfo, field_validator, model_validator

from ..priority import Priority
from ..sampling import SamplingChoices
from ..strict import STRICT, ListOf
from ..template_variables import TemplateVariables
from .adapters import AdapterChoices
from .conversation import (
    MAX_IMAGES,
    TO_GO_ON,
    AudioPart,
    ImagePart,
    MediaPart,
    Messages,
    ToolChoice,
    ToolList,
    can_go_on,
)
from .grammars import Grammar
from .values import MAX_TOP_LOGPROBS, TokenId

MAX_TOKEN_IDS = 2**20
"""Maximum token ids of a prompt or text."""

PromptInput = str | Annotated[ListOf[TokenId], Field(max_length=MAX_TOKEN_IDS)]
MaxTokens = Annotated[int, Field(ge=1, lt=2**31)]
TruncatePromptTokens = Annotated[int, Field(ge=-1, lt=2**31)]
CacheKey = Annotated[str, StringConstraints(min_length=1, max_length=256)]
PromptCacheKey = Annotated[str, StringConstraints(max_length=1024)]
Sense = Literal["vision", "audio"]
"""A kind of input that a model may take besides text."""

_TAKEN_BY: dict[Sense, type] = {"vision": ImagePart, "audio": AudioPart}

TopLogprobs = Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest(SamplingChoices):
    """A request for an answer. Exactly one of `prompt` and `messages` is given.

    - `prompt`: raw text, or the model's own token ids, to which nothing is added.
    - `adapters`: the adapters to apply, in place of the adapter that `model` names after a colon.
    - `max_tokens`: maximum tokens of the answer. `None`: up to the slot's context size.
    - `n_discard`: prompt and answer may exceed the context size. Each time the context is full,
      this many of the oldest tokens after the head are discarded.
    - `truncate_prompt_tokens`: the number of the prompt's last tokens to read; -1 reads as many as
      leave room for `max_tokens`.
    - `logprobs`: each token comes with its log-probability and the log-probabilities of the
      `top_logprobs` most likely tokens, before sampling changes them.
    - `prompt_logprobs`: the prompt is sent before the answer, with its tokens' log-probabilities.
      The whole prompt is computed for this, even if it is cached. The first token has none.
    - `suffix`: the answer is the text between `prompt` and `suffix`.
    - `tool_choice`: `none` hides the `tools`; `required` or a name forces a call of them.
    - `parallel_tool_calls`: `false` allows one call at most. If it is not set, a model whose
      template shows no tools is forced to make exactly one call.
    - `grammar`: constrains the answer's content, but neither its reasoning nor its calls.
    - `prefill_only`: computes the prompt for later requests with this prefix; generates nothing.
    - `chat_template_kwargs`: additional variables for the model's chat template.
    - `continue_final_message`: the answer continues the last message.
    - `add_generation_prompt`: `false` leaves out the text with which the template begins an answer.
      With `continue_final_message` that text is only what precedes an answer's content, such as
      an empty reasoning.
    - `priority`: `interactive`, `default` or `batch`; or a number. Its sign is the class, and the
      number orders the requests within an agent. By default the caller's key has the priority.
    - `deadline_ms`: milliseconds in which the whole answer is of use. A request that cannot begin
      in this time is refused; one that has not ended ends with `deadline_exceeded`.
    - `cache_key`: the name of a prompt that the agent has stored. The prefix that both prompts
      share is not computed again.
      A caller's requests with the same key go to the same agent, unless that agent is much busier
      than others.
    - `save_cache`: stores prompt and answer under `cache_key` if the request succeeds.
    - `prompt_cache_key`: chooses the agent as `cache_key` does; nothing is stored or loaded.
    """

    __pydantic_config__ = STRICT

    prompt: PromptInput | None = None
    messages: Messages | None = None
    model: str | None = None
    adapters: AdapterChoices | None = None
    stream: bool = True
    max_tokens: MaxTokens | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    logprobs: bool = False
    top_logprobs: TopLogprobs | None = None
    suffix: str | None = None
    thinking: bool | None = None
    chat_template_kwargs: TemplateVariables | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    tools: ToolList | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    grammar: Grammar | None = None
    priority: Priority | None = None
    deadline_ms: Annotated[int, Field(ge=1, le=86_400_000)] | None = None
    n_discard: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    truncate_prompt_tokens: TruncatePromptTokens | None = None
    prefill_only: bool = False
    prompt_logprobs: bool = False
    cache_key: CacheKey | None = None
    save_cache: bool = False
    prompt_cache_key: PromptCacheKey | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give exactly one of `prompt` and `messages`")
        return self

    @field_validator("messages")
    @classmethod
    def _few_pictures(cls, value: Messages | None) -> Messages | None:
        num_media = sum(len(each.media) for each in value or ())
        if num_media > MAX_IMAGES:
            raise ValueError(f"has {num_media} pictures and sounds; at most {MAX_IMAGES} are read")
        return value

    @property
    def media(self) -> Iterator[tuple[str, MediaPart]]:
        """The pictures and sounds that a model has to accept, each with the name of its field.

        Pictures and sounds in a tool's result are omitted: a model that does not accept them gets
        a text instead.
        """
        for place, message in enumerate(self.messages or ()):
            if isinstance(message.content, str) or message.role == "tool":
                continue
            for number, part in enumerate(message.parts):
                if isinstance(part, ImagePart):
                    yield f"messages[{place}].content[{number}].image_url.url", part
                elif isinstance(part, AudioPart):
                    yield f"messages[{place}].content[{number}].input_audio.data", part

    @property
    def has_media(self) -> bool:
        """Return whether any message has pictures or sounds."""
        return any(message.media for message in self.messages or ())

    @property
    def senses(self) -> tuple[Sense, ...]:
        """The abilities that a model needs for its `media`."""
        kinds = {type(part) for _, part in self.media}
        return tuple(sense for sense, kind in _TAKEN_BY.items() if kind in kinds)

    @field_validator("top_logprobs")
    @classmethod
    def _of_logprobs(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value and not info.data.get("logprobs"):
            raise ValueError("needs `logprobs: true`")
        return value

    @field_validator("suffix")
    @classmethod
    def _of_prompt(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("prompt") is None:
            raise ValueError("needs a `prompt`, not `messages`")
        return value

    @field_validator("truncate_prompt_tokens")
    @classmethod
    def _cut_once(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value == 0:
            raise ValueError("must be at least 1, or -1 for as many as there is room for")
        if value is not None and info.data.get("n_discard") is not None:
            raise ValueError("cannot be used with `n_discard`, which discards other tokens")
        if value is not None and info.data.get("suffix"):
            raise ValueError("cannot be used with `suffix`, which is a part of the prompt, too")
        return value

    @field_validator("prefill_only", "cache_key")
    @classmethod
    def _unshifted(cls, value: bool | str | None, info: ValidationInfo) -> bool | str | None:
        if value and info.data.get("n_discard") is not None:
            raise ValueError(
                "cannot be used with `n_discard`: a prompt that is shifted is not kept"
            )
        return value

    @field_validator("prompt_logprobs")
    @classmethod
    def _of_a_whole_prompt(cls, value: bool, info: ValidationInfo) -> bool:
        if value and not info.data.get("logprobs"):
            raise ValueError("needs `logprobs: true`")
        if value and info.data.get("n_discard") is not None:
            raise ValueError("cannot be used with `n_discard`: discarded tokens have none")
        if value and info.data.get("suffix"):
            raise ValueError("cannot be used with `suffix`, which is a part of the prompt, too")
        if value and info.data.get("truncate_prompt_tokens") is not None:
            raise ValueError("cannot be used with `truncate_prompt_tokens`: all of it is sent")
        return value

    @field_validator("continue_final_message")
    @classmethod
    def _of_an_answer(cls, value: bool, info: ValidationInfo) -> bool:
        if value and not can_go_on(info.data.get("messages")):
            raise ValueError(TO_GO_ON)
        return value

    @field_validator("save_cache")
    @classmethod
    def _under_a_key(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("cache_key") is None:
            raise ValueError("needs a `cache_key`, under which the prompt is saved")
        return value


_NAMES = tuple(field.name for field in fields(GenerateRequest))
_values = attrgetter(*_NAMES)


def with_seed(request: GenerateRequest, seed: int) -> GenerateRequest:
    """Return a copy of `request` with this seed.

    Most requests get a seed, and `dataclasses.replace` takes twice as long.
    """
    return GenerateRequest(**dict(zip(_NAMES, _values(request), strict=True)) | {"seed": seed})


# ---- which requests another agent can go on with, given the text of the answer so far


def goes_on_by_text(request: GenerateRequest) -> bool:
    """Return whether an agent can continue the answer from its text alone.

    An answer with a grammar cannot be continued, since the grammar would begin anew. A prompt of
    token ids, or with a suffix, has no place for the text. The same is true for a conversation
    whose template must not begin an answer.
    """
    if request.grammar is not None or request.suffix is not None:
        return False
    if request.truncate_prompt_tokens is not None:
        return False  # more of the prompt would be cut
    if request.messages is None:
        return isinstance(request.prompt, str)
    if request.tools and request.tool_choice not in (None, "auto", "none"):
        return False
    last = request.messages[-1]
    if request.continue_final_message:
        return not last.media
    return request.add_generation_prompt and last.role != "assistant"


def goes_on_anywhere(request: GenerateRequest) -> bool:
    """Return whether an engine or a server of another kind can continue the answer, too.

    Log-probabilities of two models would not match, and a saved prompt stays on its engine.
    """
    is_explained = request.logprobs or request.prompt_logprobs
    return goes_on_by_text(request) and not is_explained and not request.save_cache
