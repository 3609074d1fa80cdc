"""A peer that reads nothing is cut off; one that reads slowly is not."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from arriero.balancer.api.transport.patience import PatientTransport

MUCH = 1_000_000


class Ends(asyncio.Protocol):
    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost.set()


@asynccontextmanager
async def connected(
    patience: float,
) -> AsyncIterator[tuple[PatientTransport, Ends, socket.socket, list[str]]]:
    """A transport, what it ends with, its peer's socket, and what was said of cuts."""
    here, there = socket.socketpair()
    there.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, ends = await loop.create_connection(Ends, sock=here)
    cuts: list[str] = []
    patient = PatientTransport(transport, patience=patience, on_cut=lambda: cuts.append("cut"))
    with there:
        try:
            yield patient, ends, there, cuts
        finally:
            patient.stop_watching()
            if not ends.lost.is_set():
                transport.abort()
            async with asyncio.timeout(5):
                await ends.lost.wait()


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_peer_that_reads_nothing_is_cut_off(is_closed: bool) -> None:
    """Also when nothing more is to be written: then nobody waits for it but the transport."""
    async with connected(0.05) as (patient, ends, _, cuts):
        patient.writelines([b"x" * MUCH, b"y"])
        if is_closed:
            patient.close()
        async with asyncio.timeout(5):
            await ends.lost.wait()
        assert cuts == ["cut"]


async def test_a_peer_that_reads_slowly_is_served() -> None:
    async with connected(0.2) as (patient, ends, there, cuts):
        patient.write(b"x" * MUCH)
        patient.close()
        loop = asyncio.get_running_loop()
        num_read = 0
        async with asyncio.timeout(30):
            while data := await loop.sock_recv(there, 65536):
                num_read += len(data)
                await asyncio.sleep(0.05)  # slower than patience as a whole, and never as slow
            await ends.lost.wait()
        assert num_read == MUCH
        assert cuts == []


async def test_what_is_read_at_once_needs_no_timer() -> None:
    async with connected(0.01) as (patient, _, there, cuts):
        patient.write(b"hello")
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(5):
            assert await loop.sock_recv(there, 100) == b"hello"
        assert patient._watch._timer is None
        assert cuts == []
        assert not patient.is_closing()
