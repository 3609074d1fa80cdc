"""A peer that reads nothing is cut off; one that reads slowly is not."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from arriero.balancer.api.transport.patience import PatientTransport
from tests.waiting import given_time

MUCH = 1_000_000


class Ends(asyncio.Protocol):
    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost.set()


PATIENCE = 10.0


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[PatientTransport, Ends, socket.socket, list[str]]]:
    """A transport, what it ends with, its peer's socket, and what was said of cuts."""
    here, there = socket.socketpair()
    there.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, ends = await loop.create_connection(Ends, sock=here)
    cuts: list[str] = []
    patient = PatientTransport(transport, patience=PATIENCE, on_cut=lambda: cuts.append("cut"))
    with there:
        try:
            yield patient, ends, there, cuts
        finally:
            patient.stop_watching()
            if not ends.lost.is_set():
                transport.abort()
            await ends.lost.wait()


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_peer_that_reads_nothing_is_cut_off(is_closed: bool) -> None:
    """Also when nothing more is to be written: then nobody waits for it but the transport."""
    async with connected() as (patient, ends, _, cuts), given_time() as time:
        patient.writelines([b"x" * MUCH, b"y"])
        if is_closed:
            patient.close()
        await time.passes(PATIENCE - 0.1)
        assert not cuts
        await time.passes(0.1)
        assert cuts == ["cut"]
        await ends.lost.wait()


async def test_a_peer_that_reads_slowly_is_served() -> None:
    """It takes longer than patience as a whole, and is never as slow as that."""
    async with connected() as (patient, ends, there, cuts), given_time() as time:
        patient.write(b"x" * MUCH)
        patient.close()
        loop = asyncio.get_running_loop()
        num_read = 0
        began = time.now
        while data := await loop.sock_recv(there, 65536):
            num_read += len(data)
            await time.passes(PATIENCE / 4)  # a socket takes more only once half of it is read
        await ends.lost.wait()
        assert num_read == MUCH
        assert time.now - began > PATIENCE
        assert cuts == []


async def test_what_is_read_at_once_needs_no_timer() -> None:
    async with connected() as (patient, _, there, cuts):
        patient.write(b"hello")
        loop = asyncio.get_running_loop()
        assert await loop.sock_recv(there, 100) == b"hello"
        assert patient._watch._timer is None
        assert cuts == []
        assert not patient.is_closing()
