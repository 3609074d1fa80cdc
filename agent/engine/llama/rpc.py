"""Devices of llama.cpp's RPC servers (`rpc-server`): those of other hosts, and of other processes.

Such a server asks nobody who they are, encrypts nothing, and serves one process at a time: another
one waits without a word. llama.cpp aborts the process where a server is not there, so each is
asked first.
"""

import ctypes
import socket
from collections.abc import Sequence
from typing import Any

from ..model_error import ModelError
from .backends import library

DEADLINE = 10.0
"""Seconds that a server has to answer."""

_CAPABILITIES = bytes(24)
_HELLO = b"\x0e" + len(_CAPABILITIES).to_bytes(8, "little") + _CAPABILITIES
"""A command, the length of what follows, and no transport but TCP."""


def use_servers(servers: Sequence[str], deadline: float = DEADLINE) -> None:
    """Let this process's llama.cpp have the devices of `servers`, each a HOST:PORT.

    Raises `ModelError` where one does not answer.
    """
    for server in servers:
        if not _is_known(server):
            _greet(server, deadline)
            _add(server)


def _is_known(server: str) -> bool:
    return bool(_function("ggml_backend_reg_by_name")(f"RPC[{server}]".encode()))


def _greet(server: str, deadline: float) -> None:
    host, _, port = server.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), deadline) as connection:
            connection.sendall(_HELLO)
            answer = _first_byte(connection)
    except TimeoutError as error:
        raise ModelError(
            f"--rpc: {server} does not answer within {deadline:g} s; an RPC server serves one "
            "process at a time, and another may have it"
        ) from error
    except OSError as error:
        raise ModelError(f"--rpc: {server} cannot be reached: {error}") from error
    if not answer:
        raise ModelError(
            f"--rpc: {server} hangs up; it has to be llama.cpp's rpc-server, of the same version"
        )


def _first_byte(connection: socket.socket) -> bytes:
    """Nothing where the other side hangs up."""
    try:
        return connection.recv(1)
    except ConnectionResetError:
        return b""


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
"""Result and arguments, as in `ggml-backend.h`; llama-cpp-python has no names for these."""


def _function(name: str) -> Any:
    function = getattr(library(), name)
    function.restype, *function.argtypes = _DECLARED[name]
    return function
