"""Converts vLLM's calls about tokens to queries, and results to answers; llama-server's as well.

| call | fields | answer |
| --- | --- | --- |
| POST `/tokenize` | `prompt`, `add_special_tokens` | `tokens`, `count`, `max_model_len` |
| POST `/tokenize` | `content`, `add_special`, `parse_special` (llama-server) | `tokens` |
| POST `/detokenize` | `tokens` | `prompt`, and the same as `content` (llama-server) |
| GET `/tokenizer_info` | | `bos_token`, `eos_token`, `chat_template` |

As in vLLM, the text of a control token becomes that token. Each call takes a `model`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from ....shared.errors import InvalidRequest
from ....shared.inference import Count
from ....shared.queries import (
    DescribeTokenizer,
    Detokenizable,
    Detokenize,
    Detokenized,
    PlainText,
    Query,
    Result,
    Tokenize,
    Tokenized,
    TokenizerDescription,
)
from ....shared.strict import STRICT
from ...fleet.queries.query import QueryRequest
from ...fleet.view import ModelView
from ..common.parts import only
from ..fields.field_table import FieldNotes, FieldTable, Refused, Rule, nothing

_RULES: Mapping[str, Rule] = {
    "messages": Refused("this path tokenises only a `prompt`"),
    "return_token_strs": Refused("only the ids of tokens are sent", nothing("false")),
    "with_pieces": Refused("only the ids of tokens are sent", nothing("false")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _VllmTokenizeBody:
    __pydantic_config__ = STRICT

    prompt: PlainText | None = None
    content: PlainText | None = None
    model: str | None = None
    add_special_tokens: bool = True
    add_special: bool = False
    parse_special: bool = True

    def query(self) -> Tokenize:
        """Return the query: in vLLM's form for a `prompt`, in llama-server's for a `content`."""
        if self.prompt is not None:
            return Tokenize(
                text=self.prompt, add_special=self.add_special_tokens, parse_special=True
            )
        if self.content is None:
            raise InvalidRequest("`prompt` is missing", field="prompt")
        return Tokenize(
            text=self.content, add_special=self.add_special, parse_special=self.parse_special
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _VllmDetokenizeBody:
    __pydantic_config__ = STRICT

    tokens: Detokenizable
    model: str | None = None


class VllmTokens(TypedDict):
    """The tokens of a text. `max_model_len` is the context size."""

    count: Count
    max_model_len: Count
    tokens: tuple[Count, ...]
    token_strs: None


class VllmText(TypedDict):
    """The text of tokens, with replacement characters for bytes that are not valid UTF-8.

    llama-server's name of the text is `content`.
    """

    prompt: str
    content: str


class VllmTokenizer(TypedDict):
    """The tokens that begin and end the model's prompts, and its template; null if missing."""

    model: str
    bos_token: str | None
    eos_token: str | None
    chat_template: str | None


_TOKENIZE_FIELDS = FieldTable(TypeAdapter(_VllmTokenizeBody), _RULES)
_DETOKENIZE_FIELDS = FieldTable(TypeAdapter(_VllmDetokenizeBody), {})


@dataclass(frozen=True, slots=True)
class TokenCall:
    """A query, and the model that the client named."""

    query: Query
    model: str | None

    def query_request(self, model: ModelView) -> QueryRequest:
        """Return the query for the named model."""
        return QueryRequest(kind="text", parts=(self.query,), model=model.info.name)


def parse_tokenize(body: bytes, notes: FieldNotes | None = None) -> TokenCall:
    """Parse the body of `/tokenize`. Raises `InvalidRequest`, as `parse_detokenize` does."""
    parsed = _TOKENIZE_FIELDS.parsed(body, notes)
    return TokenCall(parsed.query(), parsed.model)


def parse_detokenize(body: bytes, notes: FieldNotes | None = None) -> TokenCall:
    """Parse the body of `/detokenize`."""
    parsed = _DETOKENIZE_FIELDS.parsed(body, notes)
    return TokenCall(Detokenize(tokens=parsed.tokens), parsed.model)


def tokenizer_call(model: str | None) -> TokenCall:
    """Return the query of `/tokenizer_info`."""
    return TokenCall(DescribeTokenizer(), model)


def tokens_answer(model: ModelView, results: Sequence[Result]) -> VllmTokens:
    """Return the answer of `/tokenize`."""
    tokens = only(results, Tokenized).tokens
    size = model.info.context_size
    return {"count": len(tokens), "max_model_len": size, "tokens": tokens, "token_strs": None}


def text_answer(_model: ModelView, results: Sequence[Result]) -> VllmText:
    """Return the answer of `/detokenize`."""
    text = only(results, Detokenized).text
    return {"prompt": text, "content": text}


def tokenizer_answer(model: ModelView, results: Sequence[Result]) -> VllmTokenizer:
    """Return the answer of `/tokenizer_info`."""
    description = only(results, TokenizerDescription)
    return {
        "model": model.info.name,
        "bos_token": description.bos_text,
        "eos_token": description.eos_text,
        "chat_template": description.chat_template,
    }
