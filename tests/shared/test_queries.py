import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from arriero.shared.errors import InvalidRequest, to_wire
from arriero.shared.framing.frames import MAX_MESSAGE_BYTES
from arriero.shared.inference import GenerateRequest, RequestId
from arriero.shared.messages import (
    Ask,
    Reply,
    decode_from_agent,
    decode_from_balancer,
    encode_from_agent,
    encode_from_balancer,
)
from arriero.shared.queries import (
    MAX_TEXT,
    Counted,
    CountTokens,
    Declined,
    DescribeTokenizer,
    Detokenize,
    Detokenized,
    Embed,
    Embedded,
    Query,
    Rank,
    Ranked,
    Result,
    Score,
    Tokenize,
    Tokenized,
    TokenizerDescription,
    Vector,
)

ERROR = to_wire(InvalidRequest("no", field="input"))
QUERIES: list[Query] = [
    Embed(inputs=("a", (1, 2)), pooling="cls", normalize="rms", dimensions=3),
    Rank(query="q", documents=("a", "b")),
    Tokenize(text="", add_special=True),
    Detokenize(tokens=(1,)),
    CountTokens(request=GenerateRequest(prompt="x")),
    DescribeTokenizer(),
]
RESULTS: list[Result] = [
    Embedded(vectors=(Vector(vector="AAAA", num_tokens=1), Vector(error=ERROR))),
    Ranked(scores=(Score(score=-0.5, num_tokens=2), Score(error=ERROR))),
    Tokenized(tokens=()),
    Detokenized(text="x", bytes_base64="eA=="),
    Counted(num_tokens=7),
    TokenizerDescription(),
    TokenizerDescription(bos_text="<s>", eos_text="</s>", chat_template="{{ messages }}"),
    Declined(error=ERROR),
]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.type)
def test_queries_survive_the_wire(query: Query) -> None:
    ask = Ask(id=RequestId("q.0"), query=query)
    assert decode_from_balancer(encode_from_balancer(ask)) == ask


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result.type)
def test_results_survive_the_wire(result: Result) -> None:
    reply = Reply(id=RequestId("q.0"), result=result)
    assert decode_from_agent(encode_from_agent(reply)) == reply


@pytest.mark.parametrize(
    "body",
    [
        '{"type": "embed", "inputs": []}',
        '{"type": "embed", "inputs": [""]}',
        '{"type": "embed", "inputs": [[]]}',
        '{"type": "embed", "inputs": [[-1]]}',
        '{"type": "embed", "inputs": ["a"], "pooling": "sum"}',
        '{"type": "embed", "inputs": ["a"], "dimensions": 0}',
        '{"type": "rank", "query": "", "documents": ["a"]}',
        '{"type": "count_tokens", "request": {}}',
        '{"type": "sing"}',
    ],
)
def test_what_makes_no_sense_is_refused(body: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Query).validate_json(body)


@given(st.binary(max_size=64))
def test_random_bytes_are_no_query(body: bytes) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Query).validate_json(body)


def test_the_longest_results_fit_into_a_frame() -> None:
    tokens = Tokenized(tokens=(151_935,) * 4 * MAX_TEXT)  # a token for each byte of each character
    assert len(encode_from_agent(Reply(id=RequestId("q.0"), result=tokens))) < MAX_MESSAGE_BYTES
