"""Converts Ollama's `options` to neutral fields."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from ....shared.sampling import (
    AnyStopStrings,
    MinP,
    RepeatPenalty,
    Temperature,
    TokenPenalty,
    TopP,
    TypicalP,
)
from ....shared.strict import STRICT
from ..common.body_fields import FieldNames

ALL_TOKENS = 2**31 - 1
"""A `repeat_last_n` that is larger than any context."""

Json = dict[str, Any]

_Int = Annotated[int, Field(ge=-(2**31), lt=2**31)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Ollama's options. A `num_predict` below 1 means no limit."""

    __pydantic_config__ = STRICT

    num_predict: _Int | None = None
    temperature: Temperature | None = None
    top_k: _Int | None = None
    top_p: TopP | None = None
    min_p: MinP | None = None
    typical_p: TypicalP | None = None
    repeat_last_n: _Int | None = None
    repeat_penalty: RepeatPenalty | None = None
    presence_penalty: TokenPenalty | None = None
    frequency_penalty: TokenPenalty | None = None
    mirostat: Annotated[int, Field(ge=0, le=2)] | None = None
    mirostat_tau: Annotated[float, Field(ge=0, le=100)] | None = None
    mirostat_eta: Annotated[float, Field(ge=0, le=10)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: AnyStopStrings | None = None

    def neutral(self) -> Json:
        """Return the fields of the neutral request.

        As in Ollama, a `top_k` below 1 turns the filter off, and a negative `repeat_last_n` means
        the whole context. A negative seed means a random seed.
        """
        return {
            **{name: getattr(self, name) for name in _SAME},
            "max_tokens": self.num_predict if (self.num_predict or 0) > 0 else None,
            "top_k": None if self.top_k is None else max(0, self.top_k),
            "repeat_last_n": ALL_TOKENS if (self.repeat_last_n or 0) < 0 else self.repeat_last_n,
            "seed": None if self.seed is None or self.seed < 0 else self.seed % 2**32,
            "stop": self.stop or (),
        }


_SAME = (
    *("temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty"),
    *("frequency_penalty", "mirostat", "mirostat_tau", "mirostat_eta"),
)

_NAMES = FieldNames(
    {
        "max_tokens": "options.num_predict",
        **{name: f"options.{name}" for name in (*_SAME, "top_k", "repeat_last_n", "seed", "stop")},
        "grammar.schema": "format",
        "grammar": "format",
        "thinking": "think",
    }
)
_IMAGE = "content[].image_url.url"
CHAT_NAMES = _NAMES.also({f"messages[].{_IMAGE}": "messages[].images[]"})
GENERATE_NAMES = _NAMES.also({f"messages[{place}].{_IMAGE}": "images[]" for place in (0, 1)})
"""Names of the neutral fields in the bodies of `/api/chat` and `/api/generate`.

Pictures come before a message's text, so a part's index is the picture's.
"""
