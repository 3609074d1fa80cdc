"""Prefix transfer of an agent with `--peer-addr`: a sender and a receiver."""

import ssl
import time
from dataclasses import dataclass
from functools import partial

from ...shared.inference.prefix_peers import Peer
from ...shared.quantities import Address
from ...shared.tls.contexts import ClientFiles, client_context, server_context
from ...shared.tls.key_pair import KeyPair, trust
from ..engine.prompt_store.disk_cache import DiskCache
from ..engine.prompt_store.stored_prompt import Origin
from .counts import Counts
from .kv_receiver import KvReceiver
from .kv_sender import HandOut, KvSender


@dataclass(frozen=True, slots=True)
class KvTransfer:
    """The sender and receiver of one agent. `peer` describes them to balancers."""

    peer: Peer
    sender: KvSender
    receiver: KvReceiver
    counts: Counts

    def close(self) -> None:
        """Close both; block until no thread sends or receives."""
        self.receiver.close()
        self.sender.close()


def open_kv_transfer(
    address: Address,
    hand_out: HandOut,
    disk: DiskCache | None = None,
    *,
    origin: Origin,
    cell_bytes: int,
    state_bytes: int = 0,
    context_size: int,
    most_bytes: int,
    tls: ClientFiles,
    takes_over: bool,
) -> KvTransfer:
    """Listen at `address`. Blocks. Raises `OSError`, and `TlsFileError` for `tls`.

    Prefixes come from the engine or from the `disk`, and have up to `context_size` tokens. All
    prefixes that arrive at once have up to `most_bytes`. `takes_over`: another process of the
    agent listens there until it has finished.
    """
    counts = Counts()
    pair = tls.pair
    sender = KvSender(
        hand_out,
        disk,
        origin=origin,
        most_tokens=context_size,
        counts=counts,
        tls=None if pair is None else partial(_sending_context, tls, pair),
    )
    if pair is not None:
        _sending_context(tls, pair)  # what is wrong with the files is reported now
    receiver = KvReceiver(
        origin=origin,
        cell_bytes=cell_bytes,
        state_bytes=state_bytes,
        most_bytes=most_bytes,
        counts=counts,
        tls=None if pair is None else lambda: client_context(tls, time.time()),
    )
    taken = sender.listen(address, takes_over=takes_over)
    peer = Peer(
        address=str(taken),
        tls=pair is not None,
        cells=origin.digest,
        cell_bytes=cell_bytes,
        state_bytes=state_bytes,
    )
    return KvTransfer(peer, sender, receiver, counts)


def _sending_context(files: ClientFiles, pair: KeyPair) -> ssl.SSLContext:
    """Return the context from the current files. With `--tls-ca`, peers must show a certificate."""
    context = server_context(pair, time.time()).context
    if files.ca is not None:
        trust(context, "--tls-ca", files.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
