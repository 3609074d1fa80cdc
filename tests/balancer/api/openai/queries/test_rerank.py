import json
from typing import Any

import pytest

from arriero.balancer.api.openai.queries.rerank import Ranking, RerankCall, parse_rerank
from arriero.shared.errors import InvalidRequest, PromptTooLong, RequestTooLarge, to_wire
from arriero.shared.queries import Rank, Ranked, Score
from tests.balancer.api.declared import check

SCORES = Ranked(scores=tuple(Score(score=score, num_tokens=2) for score in (0.1, 0.9, -2.0)))
BODY = {"query": "q", "documents": ["a", {"text": "b"}, "c"]}


def parsed(**body: Any) -> RerankCall:
    return parse_rerank(json.dumps(BODY | body).encode())


def test_the_question() -> None:
    query_request = parsed(model="m").query_request
    assert (query_request.kind, query_request.model) == ("rank", "m")
    assert query_request.parts == (Rank(query="q", documents=("a", "b", "c")),)


def test_the_best_come_first() -> None:
    answer = parsed().answer("id", "m", [SCORES])
    assert answer == {
        "id": "id",
        "object": "list",
        "model": "m",
        "results": [
            {"index": 1, "relevance_score": 0.9},
            {"index": 0, "relevance_score": 0.1},
            {"index": 2, "relevance_score": -2.0},
        ],
        "usage": {"prompt_tokens": 6, "total_tokens": 6},
    }


def test_only_so_many_and_with_their_texts() -> None:
    answer = parsed(top_n=1, return_documents=True).answer("id", "m", [SCORES])
    assert answer["results"] == [
        {"index": 1, "relevance_score": 0.9, "document": {"text": "b"}},
    ]


def test_a_document_that_cannot_be_had_fails_the_call() -> None:
    bad = Score(error=to_wire(PromptTooLong("it is long")))
    with pytest.raises(PromptTooLong, match=r"`documents\[2\]`: it is long"):
        parsed().answer("id", "m", [Ranked(scores=(Score(), Score(), bad))])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"query": ""}, "query"),
        ({"documents": []}, "documents"),
        ({"documents": ["a", {"title": "b"}]}, "documents[1]"),
        ({"top_n": 0}, "top_n"),
        ({"rank_fields": ["a"]}, "rank_fields"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parsed(**body)
    assert caught.value.field is not None and caught.value.field.startswith(field)


def test_a_query_counts_for_each_part_that_repeats_it() -> None:
    documents = ["x"] * (16 * 100)
    body = {"query": "q" * 160_000, "documents": documents}
    assert len(parse_rerank(json.dumps(body).encode()).query_request.parts) == 100
    body["query"] = "q" * 170_000
    with pytest.raises(RequestTooLarge, match="`query`"):
        parse_rerank(json.dumps(body).encode())


@pytest.mark.parametrize("returns_documents", [True, False])
def test_answers_are_as_declared(returns_documents: bool) -> None:
    check(Ranking, parsed(return_documents=returns_documents).answer("id", "m", [SCORES]))


def test_documents_are_cut_where_that_is_asked_for() -> None:
    [part] = parsed(max_tokens_per_doc=5).query_request.parts
    assert isinstance(part, Rank) and part.max_document_tokens == 5
    with pytest.raises(InvalidRequest, match="`truncate_prompt_tokens`"):
        parsed(truncate_prompt_tokens=5)
