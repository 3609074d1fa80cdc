import json

import pytest

from bench.dialects import LLAMA_SERVER, NATIVE, OPENAI, Request
from bench.sample import Arrival, Sample, read_answer

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


def chunk(line: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(line), line)


DONE = chunk(b"data: [DONE]\n\n")


def token(text: str = "a") -> bytes:
    return chunk(
        f'{{"event":"token","id":"r","kind":"content","text":{json.dumps(text)}}}\n'.encode()
    )


def done(num_tokens: int = 2) -> bytes:
    usage = {"prompt_tokens": 5, "cached_tokens": 3, "completion_tokens": num_tokens}
    return chunk(json.dumps({"event": "done", "id": "r", "usage": usage}).encode() + b"\n")


def theirs(**fields: object) -> bytes:
    return chunk(b"data: " + json.dumps(fields, separators=(",", ":")).encode() + b"\n\n")


def read(*arrivals: Arrival, num_tokens: int = 2) -> Sample:
    return read_answer(arrivals, NATIVE, Request("p", num_tokens), sent_at=10.0, ended_at=20.0)


def test_an_answer_of_ours() -> None:
    sample = read((11.0, HEAD), (12.0, token()), (14.0, token()), (14.5, done() + LAST))
    assert sample == Sample(
        sent_at=10.0,
        ended_at=20.0,
        token_times=(12.0, 14.0),
        num_tokens=2,
        num_prompt_tokens=5,
        num_cached_tokens=3,
    )
    assert sample.first_token == 2.0
    assert sample.gaps == [2.0]


def test_an_answer_of_llama_server() -> None:
    end = theirs(
        content="", stop=True, tokens_predicted=2, tokens_evaluated=7, timings={"cache_n": 4}
    )
    arrivals = [
        (11.0, HEAD + theirs(content="x", stop=False)),
        (12.0, theirs(content="y", stop=False) + end + LAST),
    ]
    sample = read_answer(arrivals, LLAMA_SERVER, Request("p", 2), sent_at=10.0, ended_at=12.5)
    assert sample.failure is None
    assert sample.token_times == (11.0, 12.0)
    assert (sample.num_tokens, sample.num_prompt_tokens, sample.num_cached_tokens) == (2, 7, 4)


def test_an_answer_of_openais_api() -> None:
    usage = {"completion_tokens": 2, "prompt_tokens": 7, "prompt_tokens_details": None}
    texts = [theirs(choices=[{"text": text, "finish_reason": None}]) for text in "xy"]
    end = theirs(choices=[{"text": "", "finish_reason": "length"}], usage=usage)
    arrivals = [(11.0, HEAD + texts[0]), (12.0, texts[1] + end), (12.1, DONE + LAST)]
    sample = read_answer(arrivals, OPENAI, Request("p", 2), sent_at=10.0, ended_at=12.5)
    assert sample.failure is None
    assert sample.token_times == (11.0, 12.0)
    assert (sample.num_tokens, sample.num_prompt_tokens, sample.num_cached_tokens) == (2, 7, 0)


def test_an_answer_of_openais_api_without_counts_is_a_failure() -> None:
    arrivals = [(11.0, HEAD + theirs(choices=[{"text": "x", "finish_reason": None}]) + DONE + LAST)]
    sample = read_answer(arrivals, OPENAI, Request("p", 1), sent_at=10.0, ended_at=12.5)
    assert sample.failure is not None


def test_tokens_that_come_at_once_are_one_point_in_time() -> None:
    sample = read((11.0, HEAD + token() + token()), (12.0, done() + LAST))
    assert sample.token_times == (11.0,)


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_mark_that_is_torn_counts_when_it_is_whole(cut: int) -> None:
    data = token()
    mark_end = data.index(NATIVE.token_mark) + len(NATIVE.token_mark)
    sample = read((11.0, HEAD), (12.0, data[:cut]), (13.0, data[cut:] + token() + done() + LAST))
    assert sample.token_times[0] == (12.0 if cut >= mark_end else 13.0)
    assert sample.failure is None


def test_a_text_cannot_forge_a_mark() -> None:
    forged = token('{"event":"token"')
    sample = read((11.0, HEAD + forged), (12.0, done(1) + LAST), num_tokens=1)
    assert sample.token_times == (11.0,)
    assert forged.count(NATIVE.token_mark) == 1


@pytest.mark.parametrize(
    ("data", "finding"),
    [
        (b"", "without an answer"),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n{}", "503"),
        (HEAD + token(), "the answer ends with"),
        (HEAD + token() + LAST, "the answer ends with"),
        (
            HEAD + token() + chunk(b'{"event":"error","error":{"code":"agent_lost"}}\n'),
            "agent_lost",
        ),
        (HEAD + token() + done(1) + LAST, "1 tokens came, 2 were asked for"),
        (HEAD + done(2) + LAST, "no text came"),
    ],
)
def test_what_is_not_what_was_asked_for_is_a_failure(data: bytes, finding: str) -> None:
    failure = read((11.0, data)).failure
    assert failure is not None
    assert finding in failure
