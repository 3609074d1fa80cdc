import pytest

from bench.balancer.tally import fault, faults_of_calls, latencies

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"
TOKEN = b'data: {"content":"~0000000001"}\n\n'
END = b"data: [DONE]"


def test_an_answer_that_is_whole_has_no_fault() -> None:
    assert fault(HEAD + 2 * TOKEN + END, END, 2) is None


@pytest.mark.parametrize(
    ("raw", "wrong"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n" + 2 * TOKEN + END, "not 200"),
        (HEAD + 2 * TOKEN, "0 ends"),
        (HEAD + 2 * TOKEN + END + END, "2 ends"),
        (HEAD + TOKEN + END, "1 tokens came, 2 were asked for"),
        (HEAD + 3 * TOKEN + END, "3 tokens came, 2 were asked for"),
        (HEAD + TOKEN + END + TOKEN, "after the end"),
    ],
)
def test_what_is_wrong_with_an_answer(raw: bytes, wrong: str) -> None:
    assert wrong in (fault(raw, END, 2) or "")


def event(id: int) -> bytes:
    return (
        b'{"jsonrpc":"2.0","method":"event","params":'
        b'{"event":"token","id":%d,"kind":"content","text":"~0000000001"}}' % id
    )


def end(id: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"result":{}}' % id


def test_calls_of_a_socket_are_told_apart() -> None:
    raw = event(0) + event(1) + event(1) + end(1) + event(0) + end(0)

    assert faults_of_calls(raw, 2, 2) == []


def test_calls_that_miss_tokens_or_end_twice_or_never() -> None:
    raw = event(0) + end(0) + 2 * event(1) + 2 * end(1) + 2 * event(2)

    assert faults_of_calls(raw, 3, 2) == [
        "call 0 has 1 tokens and 1 ends",
        "call 1 has 2 tokens and 2 ends",
        "call 2 has 2 tokens and 0 ends",
    ]


def test_a_token_is_as_late_as_the_bytes_that_complete_it() -> None:
    arrivals = [(2.0, b'"~0001000000" "~00005'), (3.0, b'00000"')]

    assert latencies(arrivals, 0.0, 9.0) == [1.0, 2.5]
    assert latencies(arrivals, 2.5, 9.0) == [2.5]
    assert latencies(arrivals, 0.0, 2.5) == [1.0]
