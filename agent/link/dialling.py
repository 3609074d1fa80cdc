"""TLS towards a balancer, and what a failed dial means."""

import asyncio
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager

from websockets.exceptions import InvalidMessage, InvalidStatus

from ...shared.tls.contexts import NOTHING_GIVEN, ClientFiles, client_context
from ...shared.tls.key_pair import TlsFileError

LONGEST_REASON = 300


class DialFailed(OSError):
    """The balancer cannot be reached, and why; for people."""


class KeyRefused(DialFailed):
    """The balancer does not take the agent's key; dialling again soon does not help."""


async def context_for(url: str, files: ClientFiles) -> ssl.SSLContext | None:
    """The context for `url`, from the files as they are now; none for `ws://`.

    Raises `TlsFileError`.
    """
    if not url.startswith("wss:"):
        return None
    return await asyncio.to_thread(client_context, files, time.time())


@contextmanager
def dialling_explained(files: ClientFiles = NOTHING_GIVEN) -> Iterator[None]:
    """Raises `DialFailed` for what TLS or the balancer's HTTP answer say."""
    try:
        yield
    except TlsFileError as error:
        raise DialFailed(str(error)) from error
    except ssl.SSLCertVerificationError as error:
        raise DialFailed(
            f"its certificate is not trusted: {error.verify_message}; --tls-ca names the file of "
            "the authority that signed it"
        ) from error
    except ssl.SSLError as error:
        raise DialFailed(f"TLS failed: {error.reason or error}") from error
    except InvalidStatus as error:
        code, answer = _answer(error)
        kind = KeyRefused if code in ("unauthorized", "forbidden") else DialFailed
        raise kind(answer) from error
    except InvalidMessage as error:
        if files.pair is None:
            raise
        # A certificate is refused after the dialling side's end of the handshake (RFC 8446, 2).
        raise DialFailed(
            f"it closed the connection; its --agent-ca has to know who signed {files.pair.cert}"
        ) from error


def _answer(refusal: InvalidStatus) -> tuple[str, str]:
    """The code of an error that the balancer answered, and what it says."""
    response = refusal.response
    told = f"it answers with status {response.status_code}"
    try:
        error = json.loads(response.body or b"")["error"]
        return str(error["code"]), f"{told}: {str(error['message'])[:LONGEST_REASON]}"
    except (ValueError, KeyError, TypeError):
        return "", told
