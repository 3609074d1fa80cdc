import json
from collections.abc import Iterator

import pytest

from arriero.cli.commands.chat import main
from tests.cli.commands.answers import END, token
from tests.client.fakes import FakeServer, says, writes


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lines that a person will type; then comes Ctrl-D."""
    lines: list[str] = []

    def read() -> Iterator[str]:
        yield from lines
        raise EOFError

    reader = read()
    monkeypatch.setattr("builtins.input", lambda _: next(reader))
    return lines


def conversations(balancer: FakeServer) -> list[list[tuple[str, str]]]:
    bodies = [json.loads(body) for _, _, body in balancer.seen]
    return [[(each["role"], each["content"]) for each in body["messages"]] for body in bodies]


def test_a_conversation(
    balancer: FakeServer, typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    typed += ["one", "two\\", "lines", "", "/system be kind", "/retry", "/clear", "three"]
    balancer.will(*[writes(token("hm", "reasoning"), token(f"a{n}"), END) for n in range(4)])
    assert main([]) == 0
    assert conversations(balancer) == [
        [("user", "one")],
        [("user", "one"), ("assistant", "a0"), ("user", "two\nlines")],
        [("system", "be kind"), ("user", "one"), ("assistant", "a0"), ("user", "two\nlines")],
        [("system", "be kind"), ("user", "three")],
    ]
    assert "a3" in capsys.readouterr().out


def test_an_error_ends_no_conversation(
    balancer: FakeServer, typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    typed += ["one", "two", "/nonsense", "/quit", "never asked"]
    refusal = {"error": {"code": "invalid_request", "message": "too odd"}}
    balancer.will(says(refusal, status=400), writes(token("a"), END))
    assert main(["--no-thinking", "--system", "s"]) == 0
    assert conversations(balancer)[1] == [("system", "s"), ("user", "two")]
    assert json.loads(balancer.seen[0][2])["thinking"] is False
    out = capsys.readouterr().out
    assert "too odd" in out
    assert "/retry" in out
