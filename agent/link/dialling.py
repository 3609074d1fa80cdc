"""Dials a balancer: address, TLS, access key, and the explanation of a failed dial."""

import asyncio
import json
import os
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import (
    InvalidMessage,
    InvalidProxy,
    InvalidProxyStatus,
    InvalidStatus,
    ProxyError,
)

from ...shared.framing.frames import MAX_FRAME_BYTES, PIECE_BYTES
from ...shared.framing.unsent import limit_unsent
from ...shared.tls.contexts import NOTHING_GIVEN, ClientFiles, client_context
from ...shared.tls.key_pair import TlsFileError
from ..outgoing_proxy import proxy_for
from .balancer_socket import CLOSE_GRACE, BalancerSocket

LONGEST_REASON = 300


VARIABLE = "ARRIERO_AGENT_KEY"


LONGEST = 512


_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""OpenSSL's reasons that show that the other side does not use TLS."""


class DialFailed(OSError):
    """The balancer cannot be reached; the message says why."""


class KeyRefused(DialFailed):
    """The balancer refuses the agent's key; dialling again soon does not help."""


class AgentKey:
    """The agent's access key. It is read again for each dial, so that it can be changed.

    The key comes from the file, if there is one, or else from the environment. It never comes from
    the command line, which every user of a host can see.
    """

    def __init__(self, file: Path | None, environ: Mapping[str, str] = os.environ) -> None:
        self._file = file
        self._environ = environ

    def headers(self) -> dict[str, str]:
        """Return the header with the key, if there is a key.

        Raises `DialFailed`, whose message never contains the key.
        """
        key = self._read()
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _read(self) -> str:
        if self._file is None:
            return _checked(self._environ.get(VARIABLE, ""), VARIABLE)
        try:
            text = self._file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise DialFailed(f"--key-file: cannot read {self._file}: {reason}") from error
        if not (key := _checked(text, "--key-file")):
            raise DialFailed(f"--key-file: {self._file} is empty; it must contain the agent's key")
        return key


NO_KEY = AgentKey(None, {})


async def dial(
    url: str,
    *,
    tls: ClientFiles = NOTHING_GIVEN,
    key: AgentKey = NO_KEY,
    address: str | None = None,
    close_grace: float = CLOSE_GRACE,
) -> BalancerSocket:
    """Dial `url`, at `address` instead of its resolved name if given.

    A proxy resolves the name itself.

    Raises `OSError` or `WebSocketException` if no balancer answers.
    """
    headers = await asyncio.to_thread(key.headers)
    with dialling_explained(tls):
        return await _dial(url, await context_for(url, tls), headers, close_grace, address)


async def _dial(
    url: str,
    context: ssl.SSLContext | None,
    headers: Mapping[str, str],
    close_grace: float,
    address: str | None,
) -> BalancerSocket:
    proxy = proxy_for(url)
    at: dict[str, Any] = {}
    if address is not None and proxy is None:
        at = {"host": address, "port": _port_of(url)}
    socket = await connect(
        url,
        ssl=context,
        additional_headers=headers,
        compression=None,
        max_size=MAX_FRAME_BYTES,
        ping_interval=None,  # the session has its own heartbeats
        close_timeout=close_grace,
        proxy=proxy,
        write_limit=PIECE_BYTES,
        **at,
    )
    limit_unsent(socket.transport.get_extra_info("socket"))
    return BalancerSocket(socket, close_grace)


def _port_of(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "wss" else 80)


async def context_for(url: str, files: ClientFiles) -> ssl.SSLContext | None:
    """Return the TLS context for `url` from the current files; `None` for `ws://`.

    Raises `TlsFileError`.
    """
    if not url.startswith("wss:"):
        return None
    return await asyncio.to_thread(client_context, files, time.time())


@contextmanager
def dialling_explained(files: ClientFiles = NOTHING_GIVEN) -> Iterator[None]:
    """Raise `DialFailed` with an explanation for errors of TLS and of HTTP answers."""
    try:
        yield
    except TlsFileError as error:
        raise DialFailed(str(error)) from error
    except ssl.SSLCertVerificationError as error:
        raise DialFailed(
            f"its certificate is not trusted: {error.verify_message}; set --tls-ca to the file of "
            "the authority that signed it"
        ) from error
    except ssl.SSLError as error:
        hint = "; if it does not use TLS, write ws://" if error.reason in _NO_TLS else ""
        raise DialFailed(f"TLS failed: {error.reason or error}{hint}") from error
    except (ProxyError, InvalidProxy, ImportError) as error:
        raise DialFailed(f"the proxy of HTTPS_PROXY or HTTP_PROXY: {_of_proxy(error)}") from error
    except InvalidStatus as error:
        code, answer = _answer(error)
        kind = KeyRefused if code in ("unauthorized", "forbidden") else DialFailed
        raise kind(answer) from error
    except InvalidMessage as error:
        if files.pair is None:
            raise DialFailed(
                "it does not answer as a balancer does; if it uses TLS, write wss://"
            ) from error
        # A certificate is refused after the dialling side's end of the handshake (RFC 8446, 2).
        raise DialFailed(
            f"it closed the connection; its --agent-ca has to know who signed {files.pair.cert}"
        ) from error


def _of_proxy(error: Exception) -> str:
    """Describe a proxy's error without its address, which may contain a password."""
    if isinstance(error, InvalidProxyStatus):
        return f"it answers with status {error.response.status_code}"
    if isinstance(error, ProxyError):
        return "it does not answer like a proxy"
    return "its address must begin with http:// or https://"


def _answer(refusal: InvalidStatus) -> tuple[str, str]:
    """Return the code and message of the error that the balancer answered with."""
    response = refusal.response
    answer = f"it answers with status {response.status_code}"
    try:
        error = json.loads(response.body or b"")["error"]
        return str(error["code"]), f"{answer}: {str(error['message'])[:LONGEST_REASON]}"
    except (ValueError, KeyError, TypeError):
        return "", answer


def _checked(text: str, source: str) -> str:
    key = text.strip()
    if len(key) > LONGEST or not key.isascii() or not key.isprintable() or " " in key:
        raise DialFailed(f"{source}: must contain one access key on one line")
    return key
