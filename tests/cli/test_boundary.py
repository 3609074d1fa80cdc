import argparse

import pytest

from arriero.cli.arguments import Target, UsageError, make_parser
from arriero.cli.boundary import run
from arriero.client.errors import RequestFailed, Unreachable

PARSER = make_parser("x", "")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("--n: wrong"), 2, "arriero x: --n: wrong\n"),
        (Unreachable("nobody"), 3, "arriero x: nobody; is the balancer running there?\n"),
        (RequestFailed("queue_full", "full"), 1, "arriero x: full (queue_full)\n"),
        (RequestFailed("not_found", "no request"), 2, "arriero x: no request (not_found)\n"),
        (RequestFailed("invalid_request", "`by`: no"), 2, "`by`: no (invalid_request)\n"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_what_goes_wrong_is_a_line_and_a_code(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main(arguments: argparse.Namespace, target: Target) -> None:
        raise error

    assert run(PARSER, [], main) == code
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (4, 4)])
def test_what_it_returns_is_the_code(returned: int | None, code: int) -> None:
    async def main(arguments: argparse.Namespace, target: Target) -> int | None:
        return returned

    assert run(PARSER, [], main) == code


def test_our_own_mistakes_are_not_hidden() -> None:
    async def main(arguments: argparse.Namespace, target: Target) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(PARSER, [], main)


def test_a_missing_key_is_said_where_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    async def main(arguments: argparse.Namespace, target: Target) -> None:
        raise RequestFailed("unauthorized", "an access key is needed", status=401)

    assert run(PARSER, [], main) == 1
    assert "the key comes from --key-file or ARRIERO_KEY" in capsys.readouterr().err
