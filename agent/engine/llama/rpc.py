"""Devices of llama.cpp's RPC servers (`rpc-server`): in other processes or on other hosts.

Such a server has no authentication and no encryption. It serves one process at a time, and other
processes wait silently. llama.cpp aborts the process if a server is missing or has another
protocol version. So each server is contacted before llama.cpp uses it.
"""

import ctypes
import socket
import time
from collections.abc import Sequence
from typing import Any

from ..model_error import ModelError
from .backends import library

DEADLINE = 10.0
"""Seconds within which a server has to answer."""

PROTOCOL = (7, 0, 0)
"""The version of the pinned llama.cpp: `RPC_PROTO_…_VERSION` in its `ggml-rpc.h`."""

Version = tuple[int, int, int]
"""Major, minor and patch version. The patch version does not change the protocol."""

_CAPABILITIES = bytes(24)
"""The client's capabilities: only the transport TCP."""

_HELLOS = tuple(b"\x0e" + len(body).to_bytes(8, "little") + body for body in (_CAPABILITIES, b""))
"""A command and the length of its body. Old servers hang up unless the body is empty."""

_LENGTH = 8
"""Bytes before the answer with its length; the answer begins with the version's three bytes."""


def use_servers(servers: Sequence[str], deadline: float = DEADLINE) -> None:
    """Add the devices of `servers`, each a HOST:PORT, to this process's llama.cpp.

    Raises `ModelError` if a server does not answer.
    """
    for server in servers:
        if not _is_known(server):
            _greet(server, deadline)
            _add(server)


def _is_known(server: str) -> bool:
    return bool(_function("ggml_backend_reg_by_name")(f"RPC[{server}]".encode()))


def _greet(server: str, deadline: float) -> None:
    version = _version(server, deadline)
    if version is None:
        raise ModelError(
            f"--rpc: {server} hangs up; it must be llama.cpp's rpc-server with version "
            f"{_words(PROTOCOL)} of the protocol"
        )
    if not speaks(version):
        raise ModelError(
            f"--rpc: {server} speaks version {_words(version)} of llama.cpp's RPC protocol, and "
            f"this agent {_words(PROTOCOL)}; run an rpc-server of the agent's llama.cpp there"
        )


def speaks(version: Version) -> bool:
    """Return whether llama.cpp accepts a server of this version, by its own rule."""
    return version[0] == PROTOCOL[0] and version[1] <= PROTOCOL[1]


def _version(server: str, deadline: float) -> Version | None:
    """Return the server's version; `None` if the server sends no version. Raises `ModelError`."""
    try:
        answers = (_answer(server, hello, deadline) for hello in _HELLOS)
        return next(filter(None, answers), None)
    except TimeoutError as error:
        raise ModelError(
            f"--rpc: {server} does not answer within {deadline:g} s; an RPC server serves one "
            "process at a time, and another may have it"
        ) from error
    except OSError as error:
        raise ModelError(f"--rpc: {server} cannot be reached: {error}") from error


def _answer(server: str, hello: bytes, deadline: float) -> Version | None:
    host, _, port = server.rpartition(":")
    ends_at = time.monotonic() + deadline
    with socket.create_connection((host, int(port)), deadline) as connection:
        try:
            connection.sendall(hello)
            found = _received(connection, _LENGTH + len(PROTOCOL), ends_at)
        except ConnectionError:
            return None
    if len(found) < _LENGTH + len(PROTOCOL):
        return None
    major, minor, patch = found[_LENGTH:]
    return major, minor, patch


def _received(connection: socket.socket, size: int, ends_at: float) -> bytes:
    """Receive `size` bytes, or fewer if the other side hangs up. Raises `TimeoutError`."""
    found = b""
    while len(found) < size:
        connection.settimeout(max(0.001, ends_at - time.monotonic()))
        more = connection.recv(size - len(found))
        if not more:
            break
        found += more
    return found


def _words(version: Version) -> str:
    return ".".join(map(str, version))


def _add(server: str) -> None:
    rpc = _function("ggml_backend_reg_by_name")(b"RPC")
    if not rpc:
        raise ModelError(
            "--rpc: llama.cpp was built without its RPC backend (CMAKE_ARGS=-DGGML_RPC=on)"
        )
    found = _function("ggml_backend_reg_get_proc_address")(rpc, b"ggml_backend_rpc_add_server")
    add = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)(found)
    devices = add(server.encode())
    if not devices:
        raise ModelError(f"--rpc: {server} has no devices")
    _function("ggml_backend_register")(devices)


_DECLARED = {
    "ggml_backend_reg_by_name": (ctypes.c_void_p, ctypes.c_char_p),
    "ggml_backend_reg_get_proc_address": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p),
    "ggml_backend_register": (None, ctypes.c_void_p),
}
"""Result and arguments as in `ggml-backend.h`, which llama-cpp-python does not declare."""


def _function(name: str) -> Any:
    function = getattr(library(), name)
    function.restype, *function.argtypes = _DECLARED[name]
    return function
