import io
import json

import pytest

from arriero.cli.commands.generate import main
from tests.cli.commands.answers import ANSWER, END, line, token
from tests.client.fakes import FakeServer, says, writes


def sent(balancer: FakeServer) -> dict[str, object]:
    body: dict[str, object] = json.loads(balancer.seen[-1][2])
    return body


def test_text_comes_out_and_warnings_beside_it(
    balancer: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    warning = line(event="warning", code="w", message="careful")
    balancer.will(writes(token("hm", "reasoning"), warning, token("ye"), token("s"), END))
    argv = ["why?", "--system", "be kind", "--max-tokens", "5", "--set", "top_k=3"]
    assert main(argv) == 0
    assert tuple(capsys.readouterr()) == ("yes\n", "warning: careful\n")
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "why?"}]
    assert sent(balancer) == {"max_tokens": 5, "top_k": 3, "messages": messages, "stream": True}


@pytest.mark.parametrize("argv", [[], ["-"]])
def test_from_stdin_as_json(
    balancer: FakeServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("piped"))
    balancer.will(says(ANSWER))
    assert main([*argv, "--raw", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "yes"
    assert sent(balancer) == {"prompt": "piped", "stream": False}


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["x", "--set", "top_k"], "--set: must be FIELD=JSON"),
        (["x", "--set", "top_k=x"], "--set top_k: must be JSON"),
        ([" "], "the question is empty"),
        (["x", "--raw", "--system", "s"], "--system: a raw prompt has no messages"),
    ],
)
def test_wrong_arguments(
    balancer: FakeServer, capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    assert main(argv) == 2
    assert said in capsys.readouterr().err
    assert balancer.seen == []


def test_a_refusal(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    error = {"code": "model_not_found", "message": "no such model", "retryable": False}
    balancer.will(says({"error": error}, status=404))
    assert main(["x"]) == 2
    assert capsys.readouterr().err == "arriero generate: no such model (model_not_found)\n"
