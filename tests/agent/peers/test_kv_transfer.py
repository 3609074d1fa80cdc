"""Two agents with everything there is between them, in the clear and over TLS."""

import asyncio
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from arriero.agent.engine.prompt_store.stored_prompt import Origin, StoredPrompt
from arriero.agent.peers.kv_transfer import KvTransfer, open_kv_transfer
from arriero.shared.quantities import LOOPBACK, Address
from arriero.shared.tls.contexts import NOTHING_GIVEN, ClientFiles
from arriero.shared.tls.key_pair import KeyPair, TlsFileError
from tests.agent.peers.setting import CELL_BYTES, KEPT, ORIGIN, PROMPT, Cache, source
from tests.authority import Authority
from tests.waiting import HANGS


def opened(
    tls: ClientFiles = NOTHING_GIVEN, origin: Origin = ORIGIN, address: Address | None = None
) -> KvTransfer:
    return open_kv_transfer(
        address or Address(LOOPBACK, 0),
        Cache().hand_out,
        origin=origin,
        cell_bytes=CELL_BYTES,
        context_size=100,
        most_bytes=10**9,
        tls=tls,
        takes_over=False,
    )


async def fetched(ours: KvTransfer, theirs: KvTransfer) -> StoredPrompt | None:
    """What `ours` gets of `theirs`; both are closed then."""
    theirs.sender.allow("t", 30.0)
    reply: asyncio.Future[StoredPrompt | None] = asyncio.get_running_loop().create_future()
    ours.receiver.fetch(1, source(theirs.peer.address), PROMPT, reply.set_result)
    try:
        return await asyncio.wait_for(reply, HANGS)
    finally:
        for each in (ours, theirs):
            await asyncio.to_thread(each.close)


async def test_a_prefix_goes_from_one_to_the_other() -> None:
    ours, theirs = opened(), opened()
    assert ours.peer.can_use(theirs.peer)
    assert ours.peer.cell_bytes == CELL_BYTES
    assert await fetched(ours, theirs) == KEPT
    assert (ours.counts.total.num, theirs.counts.total.lent) == (1, 1)


def files(authority: Authority, name: str) -> ClientFiles:
    signed = authority.sign(name)
    return ClientFiles(authority.ca, KeyPair(signed.cert, signed.key))


async def test_over_tls_both_sides_show_who_they_are(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ours, theirs = opened(files(authority, "a")), opened(files(authority, "b"))
    assert ours.peer.tls and ours.peer.can_use(theirs.peer)
    assert await fetched(ours, theirs) == KEPT


async def test_a_peer_that_another_authority_signed_gets_nothing(tmp_path: Path) -> None:
    stranger = files(Authority(tmp_path, "other"), "a")
    stranger = replace(stranger, ca=Authority(tmp_path).ca)
    authority = Authority(tmp_path)
    ours = opened(replace(stranger, ca=authority.ca))
    theirs = opened(files(authority, "b"))
    assert await fetched(ours, theirs) is None
    assert theirs.counts.total.lent == 0


def test_agents_of_another_engine_do_not_fit() -> None:
    ours, theirs = opened(), opened(origin=replace(ORIGIN, engine="e 2"))
    assert not ours.peer.can_use(theirs.peer)
    ours.close()
    theirs.close()


def test_what_cannot_be_opened_says_so(tmp_path: Path) -> None:
    with pytest.raises(TlsFileError, match="--tls-cert"):
        opened(ClientFiles(None, KeyPair(tmp_path / "none", tmp_path / "none")))
    with socket.create_server((LOOPBACK, 0)) as taken, pytest.raises(OSError):
        opened(address=Address(LOOPBACK, taken.getsockname()[1]))
