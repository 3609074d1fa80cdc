"""Queries that need only vocabulary and template: tokenise, detokenise, count, describe.

Thread-safe.
"""

import base64
from collections.abc import Sequence
from typing import assert_never

from ...shared.errors import InvalidRequest
from ...shared.queries import (
    MAX_TEXT,
    Counted,
    CountTokens,
    DescribeTokenizer,
    Detokenize,
    Detokenized,
    TextQuery,
    Tokenize,
    Tokenized,
    TokenizerDescription,
)
from ..engine.loaded_model import Vocab
from .preparer import Preparer


class TextQueries:
    """For one model's `vocab` and `preparer`."""

    def __init__(self, vocab: Vocab, preparer: Preparer) -> None:
        self._vocab = vocab
        self.preparer = preparer
        """For queries that come from now on; it may be replaced."""

    def answer(self, query: TextQuery) -> Tokenized | Detokenized | Counted | TokenizerDescription:
        """Raises `RequestError` that names the field and says what would be right."""
        match query:
            case Tokenize():
                return Tokenized(tokens=self._tokenize(query))
            case Detokenize(tokens=tokens):
                return self._detokenize(tokens)
            case CountTokens(request=request):
                return Counted(num_tokens=self.preparer.num_tokens(request))
            case DescribeTokenizer():
                return self._description()
            case _:
                assert_never(query)

    def _description(self) -> TokenizerDescription:
        return TokenizerDescription(
            bos_text=_told(self._vocab.bos_text),
            eos_text=_told(self._vocab.eos_text),
            chat_template=_told(self.preparer.template_text),
        )

    def _tokenize(self, query: Tokenize) -> tuple[int, ...]:
        return self._vocab.tokenize(
            query.text, add_special=query.add_special, parse_special=query.parse_special
        )

    def _detokenize(self, tokens: Sequence[int]) -> Detokenized:
        for position, token in enumerate(tokens):
            if token >= self._vocab.size:
                raise InvalidRequest(
                    f"`tokens[{position}]`: there is no token {token}; this model's ids go up to "
                    f"{self._vocab.size - 1}",
                    field=f"tokens[{position}]",
                )
        data = b"".join(map(self._vocab.piece, tokens))
        try:
            return Detokenized(text=data.decode())
        except UnicodeDecodeError:
            text = data.decode(errors="replace")
            return Detokenized(text=text, bytes_base64=base64.b64encode(data).decode())


def _told(text: str | None) -> str | None:
    return text if text and len(text) <= MAX_TEXT else None
