"""`/v1/rerank`, in the form that Jina, Cohere and llama-server share.

An error in one document fails the whole call, and names the index of the document.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from .....shared.inference import Count
from .....shared.queries import MAX_INPUTS, NonEmpty, Rank, Result
from .....shared.strict import STRICT, ListOf
from ....fleet.queries.query import QueryRequest
from ...common.embeddings import named
from ...common.parts import first_fault, in_parts, scores_of
from ...common.request_checks import check_copies
from ...fields.field_table import FieldNotes, FieldTable
from .. import fields
from .embeddings import QueryUsage


class RankedDocument(TypedDict):
    """A document, as the client sent it."""

    text: str


class Ranked(TypedDict):
    """The score of the document at `index`."""

    index: Count
    relevance_score: float
    document: NotRequired[RankedDocument]


class Ranking(TypedDict):
    """Scores of documents, best first."""

    id: str
    object: Literal["list"]
    model: str
    results: list[Ranked]
    usage: QueryUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class _TextDocument:
    __pydantic_config__ = STRICT

    text: NonEmpty


@dataclass(frozen=True, slots=True, kw_only=True)
class _RerankBody:
    __pydantic_config__ = STRICT

    query: NonEmpty
    documents: Annotated[
        ListOf[NonEmpty | _TextDocument], Field(min_length=1, max_length=MAX_INPUTS)
    ]
    model: str | None = None
    top_n: Annotated[int, Field(ge=1)] | None = None
    max_tokens_per_doc: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    return_documents: bool = False


RERANK_FIELDS = FieldTable(TypeAdapter(_RerankBody), fields.RERANK)


@dataclass(frozen=True, slots=True)
class RerankCall:
    """A parsed call. If `top_n` is `None`, the answer has all documents."""

    query_request: QueryRequest
    documents: tuple[str, ...]
    top_n: int | None
    returns_documents: bool

    def answer(self, id: str, model: str, results: Sequence[Result]) -> Ranking:
        """Return the body of the answer. Raises the error of the first faulty document."""
        scores = scores_of(results)
        if (fault := first_fault(scores)) is not None:
            raise named(fault, f"documents[{fault.index}]")
        num_tokens = sum(score.num_tokens for score in scores)
        best = sorted(range(len(scores)), key=lambda index: -scores[index].score)[: self.top_n]
        return {
            "id": id,
            "object": "list",
            "model": model,
            "results": [self._result(index, scores[index].score) for index in best],
            "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
        }

    def _result(self, index: int, score: float) -> Ranked:
        result: Ranked = {"index": index, "relevance_score": score}
        if self.returns_documents:
            result["document"] = {"text": self.documents[index]}
        return result


def parse_rerank(body: bytes, notes: FieldNotes | None = None) -> RerankCall:
    """Parse the body of `/v1/rerank`. Raises `InvalidRequest` and `RequestTooLarge`."""
    parsed = RERANK_FIELDS.parsed(body, notes)
    documents = tuple(
        each.text if isinstance(each, _TextDocument) else each for each in parsed.documents
    )
    shares = in_parts(documents)
    check_copies(len(shares) * len(parsed.query.encode()), field="query")
    most = parsed.max_tokens_per_doc
    parts = tuple(
        Rank(query=parsed.query, documents=share, max_document_tokens=most) for share in shares
    )
    query_request = QueryRequest(kind="rank", parts=parts, model=parsed.model)
    return RerankCall(query_request, documents, parsed.top_n, parsed.return_documents)
