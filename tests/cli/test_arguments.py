"""Arguments of all commands, and what becomes of failures."""

import argparse
from pathlib import Path

import pytest

from arriero.cli.arguments import (
    Target,
    UsageError,
    make_parser,
    positive,
    positives,
    run,
    target_of,
)
from arriero.client.client import INFERENCE_URL, MANAGEMENT_URL
from arriero.client.errors import RequestFailed, Unreachable
from tests.authority import Authority


def target(*argv: str, **environ: str) -> Target:
    return target_of(make_parser("x", "").parse_args(argv), environ)


def test_without_anything_it_is_this_machine() -> None:
    assert target() == Target(INFERENCE_URL, MANAGEMENT_URL)


def test_flags_win_over_the_environment() -> None:
    environ = {"ARRIERO_URL": "http://a:1", "ARRIERO_MANAGEMENT": "http://b:2/", "ARRIERO_KEY": "k"}
    assert target(**environ) == Target("http://a:1", "http://b:2", "k")
    assert target("--url", "https://c", **environ).url == "https://c"


def test_a_key_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("ark_1\n")
    assert target("--key-file", str(file), ARRIERO_KEY="other").key == "ark_1"
    with pytest.raises(UsageError, match="--key-file: cannot read"):
        target("--key-file", str(tmp_path / "none"))
    file.write_text("\n")
    with pytest.raises(UsageError, match="is empty; it should have a key"):
        target("--key-file", str(file))


def test_an_authority_from_a_file(tmp_path: Path) -> None:
    ca = Authority(tmp_path).ca
    assert target("--tls-ca", str(ca)).tls_ca == str(ca)
    assert target(ARRIERO_TLS_CA=str(ca)).tls_ca == str(ca)
    with pytest.raises(UsageError, match=r"^--tls-ca: cannot read"):
        target("--tls-ca", str(tmp_path / "none"), ARRIERO_TLS_CA=str(ca))


@pytest.mark.parametrize("url", ["localhost:8061", "ftp://x", "http://", "http://x:99999"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(UsageError, match="--url: must be a URL"):
        target("--url", url)


def test_numbers() -> None:
    assert (positive("7"), positives("1,8")) == (7, [1, 8])
    for wrong in ("0", "-1", "1.5", "x", "", "²"):
        with pytest.raises(argparse.ArgumentTypeError, match="whole number"):
            positive(wrong)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["drian"], "invalid choice: 'drian' (choose from 'list', 'drain'); did you mean drain?"),
        (["--modle=x"], "unrecognized arguments: --modle=x; did you mean --model?"),
        (["--zzz"], "unrecognized arguments: --zzz; see --help"),
        (["--number", "0"], "must be a whole number of at least 1, not '0'; see arriero x --help"),
    ],
)
def test_wrong_arguments_are_one_line_with_what_was_meant(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = make_parser("x", "")
    parser.add_argument("action", nargs="?", choices=("list", "drain"), default="list")
    parser.add_argument("--model")
    parser.add_argument("--number", type=positive)
    with pytest.raises(SystemExit) as exit:
        parser.parse_args(argv)
    assert exit.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("arriero x: ") and err.endswith(said + "\n")
    assert err.count("\n") == 1


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
