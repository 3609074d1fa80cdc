"""TLS towards a balancer, and what a failed dial is called."""

import ssl
from http import HTTPStatus
from pathlib import Path

import pytest
from websockets.datastructures import Headers
from websockets.exceptions import InvalidMessage, InvalidStatus
from websockets.http11 import Response

from arriero.agent.link.dialling import (
    NO_KEY,
    AgentKey,
    DialFailed,
    KeyRefused,
    context_for,
    dialling_explained,
)
from arriero.shared.tls.contexts import ClientFiles
from arriero.shared.tls.key_pair import KeyPair, TlsFileError
from tests.authority import Authority


async def test_only_wss_needs_a_context(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    assert await context_for("ws://balancer:8060", ClientFiles(tmp_path / "none")) is None
    context = await context_for("wss://balancer:8060", ClientFiles(authority.ca))
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname


async def test_files_are_read_anew_for_each_dial(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = ClientFiles(authority.ca)
    await context_for("wss://balancer:8060", files)
    authority.ca.unlink()
    with pytest.raises(TlsFileError, match="--tls-ca"):
        await context_for("wss://balancer:8060", files)


def answer(status: int, body: bytes) -> InvalidStatus:
    return InvalidStatus(Response(status, HTTPStatus(status).phrase, Headers(), body))


PAIR = KeyPair(Path("a.pem"), Path("a.key"))


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (TlsFileError("--tls-ca: cannot read x"), "--tls-ca: cannot read x"),
        (ssl.SSLCertVerificationError("no"), "its certificate is not trusted: "),
        (
            ssl.SSLError("no"),
            "TLS failed: WRONG_VERSION_NUMBER; if it does not use TLS, write ws://",
        ),
        (
            answer(403, b'{"error": {"code": "forbidden_host", "message": "no"}}'),
            "it answers with status 403: no",
        ),
        (answer(502, b"<html>"), "it answers with status 502"),
        (answer(500, b'{"error": "x"}'), "it answers with status 500"),
        (InvalidMessage("cut"), "it closed the connection; its --agent-ca has to know who"),
    ],
)
def test_what_went_wrong_is_told(raised: Exception, told: str) -> None:
    if isinstance(raised, ssl.SSLError):
        raised.reason = "WRONG_VERSION_NUMBER"
    if isinstance(raised, ssl.SSLCertVerificationError):
        raised.verify_message = "self-signed certificate"
    with pytest.raises(DialFailed) as error, dialling_explained(ClientFiles(None, PAIR)):
        raise raised
    assert str(error.value).startswith(told)


def test_others_pass(tmp_path: Path) -> None:
    with pytest.raises(DialFailed, match="write wss://"), dialling_explained():
        raise InvalidMessage("cut")
    with pytest.raises(ConnectionRefusedError), dialling_explained():
        raise ConnectionRefusedError


@pytest.mark.parametrize("code", ["unauthorized", "forbidden"])
def test_a_refused_key_is_told_apart(code: str) -> None:
    body = b'{"error": {"code": "%s", "message": "no such key"}}' % code.encode()
    told = "it answers with status 401: no such key"
    with pytest.raises(KeyRefused, match=told), dialling_explained():
        raise answer(401, body)
    with pytest.raises(DialFailed) as error, dialling_explained():
        raise answer(403, b'{"error": {"code": "forbidden_host", "message": "no"}}')
    assert not isinstance(error.value, KeyRefused)


KEY = "ark_" + "a" * 43


def test_it_comes_from_the_environment() -> None:
    assert AgentKey(None, {"ARRIERO_AGENT_KEY": KEY}).headers() == {
        "Authorization": f"Bearer {KEY}"
    }
    assert AgentKey(None, {}).headers() == NO_KEY.headers() == {}


def test_the_file_wins_and_may_change(tmp_path: Path) -> None:
    file = tmp_path / "agent.key"
    file.write_text(f"{KEY}\n")
    key = AgentKey(file, {"ARRIERO_AGENT_KEY": "other"})
    assert key.headers() == {"Authorization": f"Bearer {KEY}"}
    file.write_text("ark_new")
    assert key.headers() == {"Authorization": "Bearer ark_new"}


@pytest.mark.parametrize("text", [f"{KEY} {KEY}", f"{KEY}\r\nX-Evil: 1", "x" * 600, "ñ"])
def test_what_cannot_be_a_header_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "agent.key"
    file.write_text(text)
    with pytest.raises(DialFailed, match="--key-file: must contain one access key") as refusal:
        AgentKey(file, {}).headers()
    assert text not in str(refusal.value)


def test_a_file_that_says_nothing(tmp_path: Path) -> None:
    with pytest.raises(DialFailed, match="--key-file: cannot read"):
        AgentKey(tmp_path / "none", {}).headers()
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(DialFailed, match="is empty"):
        AgentKey(tmp_path / "empty", {}).headers()
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(DialFailed, match="it is not text"):
        AgentKey(tmp_path / "binary", {}).headers()
