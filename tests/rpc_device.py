"""A device of type GPU where there is none: another process's CPU, with a bounded memory.

llama.cpp's RPC backend makes a device of it; an agent finds it by `--rpc ADDRESS`. Its memory is
counted and bounded here, inside the functions by which ggml's CPU backend tells and allocates it;
those of other backends can be bounded in the same way.
ggml's own server serves one connection at a time, so each gets a server of its own; all share the
device's memory.
"""

import ctypes
import socket
import subprocess
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[1]
PATIENCE = 60.0
"""Seconds to start in."""


class RpcDevice:
    """A process that serves one device with `memory` bytes; it ends with the context.

    It is at the `address` of one that has vanished, or at a free one.
    """

    def __init__(self, memory: int, address: str = "127.0.0.1:0") -> None:
        self.memory = memory
        self._process = subprocess.Popen(
            (sys.executable, "-m", "tests.rpc_device", str(memory), address),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        self.address = self._answer()
        """HOST:PORT."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.vanish()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def vanish(self) -> None:
        """As a host that loses its power, or a card that falls off the bus."""
        self._process.kill()
        self._process.wait()

    @property
    def used(self) -> int:
        """Bytes that are allocated now."""
        return int(self._ask("used"))

    def limit(self, memory: int) -> None:
        """From now on it has so many bytes, as when others take the rest; what is taken stays."""
        self._ask(f"limit {memory}")
        self.memory = memory

    def _ask(self, words: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(words + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        """Its next line that is for us; ggml's server prints others."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_MARK):
                return line.removeprefix(_MARK).strip()
        raise AssertionError(f"the device ended with {self._process.wait()}")


_MARK = "device: "
_POINTER = ctypes.sizeof(ctypes.c_void_p)

_Memory = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class BoundedMemory:
    """The memory of one of ggml's devices in this process, of which there are `limit` bytes.

    It takes the place of functions in ggml's tables (`ggml-backend-impl.h`).
    """

    def __init__(self, ggml: Any, limit: int, device: str = "CPU") -> None:
        self.limit = limit
        self._sizes: dict[int, int] = {}
        self._lock = threading.Lock()
        self.device = _called(ggml, "ggml_backend_dev_by_name", device.encode())
        buffers = _called(ggml, "ggml_backend_dev_buffer_type", ctypes.c_void_p(self.device))
        self._allocate_really = _Allocate(_slot(buffers, 1).value or 0)
        self._free_really: Any = None
        self._kept = (_Memory(self._tell), _Allocate(self._allocate), _Free(self._free))
        tell, allocate, self._free_address = (ctypes.cast(f, ctypes.c_void_p) for f in self._kept)
        _slot(self.device, 2).value = tell.value
        _slot(buffers, 1).value = allocate.value

    @property
    def used(self) -> int:
        with self._lock:
            return sum(self._sizes.values())

    def _tell(self, device: int, free: Any, total: Any) -> None:
        free[0], total[0] = max(0, self.limit - self.used), self.limit

    def _allocate(self, buffers: int, size: int) -> int | None:
        if self.used + size > self.limit:
            return None
        buffer: int | None = self._allocate_really(buffers, size)
        if buffer:
            slot = _slot(buffer, 0)
            self._free_really = self._free_really or _Free(slot.value or 0)
            slot.value = self._free_address.value
            with self._lock:
                self._sizes[buffer] = size
        return buffer

    def _free(self, buffer: int) -> None:
        with self._lock:
            self._sizes.pop(buffer, None)
        self._free_really(buffer)


def _slot(table: int, number: int) -> ctypes.c_void_p:
    """The pointer of this number in a table of ggml's."""
    return ctypes.c_void_p.from_address(table + number * _POINTER)


def _called(ggml: Any, name: str, argument: Any) -> int:
    function = getattr(ggml, name)
    function.restype = ctypes.c_void_p
    found: int = function(argument)
    return found


class Servers:
    """ggml's own servers, one for each connection that is open."""

    def __init__(self, ggml: Any, device: int) -> None:
        registered = _called(ggml, "ggml_backend_reg_by_name", b"RPC")
        find = ggml.ggml_backend_reg_get_proc_address
        find.restype, find.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
        serve = ctypes.CFUNCTYPE(
            *(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t),
            ctypes.c_void_p,
        )
        self._serve = serve(find(registered, b"ggml_backend_rpc_start_server"))
        self._devices = (ctypes.c_void_p * 1)(device)
        self._idle: SimpleQueue[int] = SimpleQueue()

    def pass_on(self, client: socket.socket) -> None:
        """Serve one connection, until it ends."""
        port, server = self._connected()
        back = threading.Thread(target=_copy, args=(server, client), daemon=True)
        back.start()
        _copy(client, server)
        back.join()
        client.close()
        server.close()
        self._idle.put(port)

    def _connected(self) -> tuple[int, socket.socket]:
        port = self._started() if self._idle.empty() else self._idle.get()
        while True:
            try:
                connection = socket.create_connection(("127.0.0.1", port))
            except ConnectionRefusedError:
                threading.Event().wait(0.01)  # it does not say when it listens
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return port, connection

    def _started(self) -> int:
        with socket.socket() as finding:
            finding.bind(("127.0.0.1", 0))
            port: int = finding.getsockname()[1]
        words = (f"127.0.0.1:{port}".encode(), None, 1, 1, ctypes.addressof(self._devices))
        threading.Thread(target=self._serve, args=words, daemon=True).start()
        return port


def _copy(source: socket.socket, target: socket.socket) -> None:
    """All that `source` sends, and its end."""
    room = memoryview(bytearray(2**20))
    try:
        while size := source.recv_into(room):
            target.sendall(room[:size])
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            end.close()


def main() -> None:
    """Serve the device until standard input ends."""
    from arriero.agent.engine.llama.backends import library

    ggml = library()
    memory = BoundedMemory(ggml, int(sys.argv[1]))
    servers = Servers(ggml, memory.device)
    host, _, port = sys.argv[2].rpartition(":")
    listener = socket.create_server((host, int(port)))

    def accept() -> None:
        while True:
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=servers.pass_on, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    _say(f"127.0.0.1:{listener.getsockname()[1]}")
    for line in sys.stdin:
        match line.split():
            case ["limit", size]:
                memory.limit = int(size)
                _say(size)
            case ["used"]:
                _say(str(memory.used))


def _say(words: str) -> None:
    print(_MARK + words, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
