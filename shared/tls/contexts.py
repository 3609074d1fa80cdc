"""TLS contexts: TLS 1.3, and TLS 1.2 with forward secrecy and authenticated encryption."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from .certificate_dates import Validity
from .key_pair import KeyPair, trust, use_key_pair

_TLS12_CIPHERS = "@SECLEVEL=2:ECDHE+AESGCM:ECDHE+CHACHA20"


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The context of a listening port, and the dates of its certificate."""

    context: ssl.SSLContext
    validity: Validity


def server_context(pair: KeyPair, now: float, agent_ca: Path | None = None) -> ServerContext:
    """Return the context of a port that shows `pair`. Raises `TlsFileError`.

    With `agent_ca` a client may show a certificate, which `agent_ca` must have signed. Each
    request handler checks whether the client showed one.
    """
    context = _held_to_the_rules(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    context.set_alpn_protocols(["http/1.1"])
    validity = use_key_pair(context, pair, now)
    if agent_ca is not None:
        trust(context, "--agent-ca", agent_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return ServerContext(context, validity)


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """The files of a TLS client: `--tls-ca`, and a certificate to show."""

    ca: Path | None = None
    pair: KeyPair | None = None


NOTHING_GIVEN = ClientFiles()


def client_context(files: ClientFiles, now: float) -> ssl.SSLContext:
    """Return a client's context, which trusts `files.ca` or the system's certificates.

    Raises `TlsFileError`. Reading the system's certificates takes tens of milliseconds.
    """
    context = _held_to_the_rules(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    if files.ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        trust(context, "--tls-ca", files.ca)
    if files.pair is not None:
        use_key_pair(context, files.pair, now)
    return context


def _held_to_the_rules(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_TLS12_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    return context
