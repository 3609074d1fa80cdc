"""Devices of RPC servers, each of which is another process here.

llama.cpp never forgets a server, and aborts the process where it asks one that is gone: so what
uses one runs in a process of its own.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader

from arriero.agent.engine.llama.devices import FoundDevice, loaded_devices
from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.llama.rpc import PROTOCOL, Version, speaks, use_servers
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.model_error import ModelError
from bench.small_models import write
from tests.agent.engine.llama.running import GREEDY, Ended, answers, apart, generate, sequences
from tests.rpc_device import RpcDevice
from tests.waiting import HANGS

MODEL = Path(__file__).parents[4] / "demo" / "arriero-demo.gguf"
MIB = 2**20


def gpus_of(*servers: str) -> list[FoundDevice]:
    use_servers(servers)
    use_servers(servers)  # known already
    return [device for _, device in loaded_devices().gpus()]


def test_a_device_with_the_memory_that_it_has() -> None:
    with RpcDevice(64 * MIB) as large, RpcDevice(16 * MIB) as small:
        assert apart(gpus_of, large.address, small.address) == [
            FoundDevice("RPC0", large.address, "gpu", memory=64 * MIB, free=64 * MIB),
            FoundDevice("RPC1", small.address, "gpu", memory=16 * MIB, free=16 * MIB),
        ]


def used_and_answers(
    model: Path, options: dict[str, Any], *devices: str
) -> tuple[list[int], Ended]:
    found = answers(model, options | {"rpc": ",".join(devices)})
    return [each.memory - each.free for _, each in loaded_devices().gpus()], found


def test_layers_lie_on_two_devices_by_their_memory_and_tokens_are_those_of_the_cpu() -> None:
    with RpcDevice(96 * MIB) as large, RpcDevice(32 * MIB) as small:
        (most, least), found = apart(
            used_and_answers, MODEL, {"kernels": "plain"}, large.address, small.address
        )
        assert (most > 2 * least) and least > MIB
    assert found == answers(MODEL, {"kernels": "plain"})


def test_tensor_split_says_which_device_takes_more() -> None:
    with RpcDevice(96 * MIB) as large, RpcDevice(32 * MIB) as small:
        options = {"kernels": "plain", "tensor_split": "0,1"}
        (first, second), _ = apart(used_and_answers, MODEL, options, large.address, small.address)
        assert first < MIB < second


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mixture of experts."""
    return write("qwen3moe", tmp_path_factory.mktemp("models") / "experts.gguf")


@pytest.fixture(scope="module")
def of_experts(experts: Path) -> Ended:
    """The answers on the CPU, whatever the size of the context."""
    return answers(experts, {"kernels": "plain"})


def test_experts_in_host_memory(experts: Path, of_experts: Ended) -> None:
    used = []
    for where in ({}, {"n_cpu_moe": 4}, {"override_tensor": r"ffn_.*_exps=CPU"}):
        with RpcDevice(96 * MIB) as device:
            options = where | {"kernels": "plain"}
            (on_device,), found = apart(used_and_answers, experts, options, device.address)
        used.append(on_device)
        assert found == of_experts
    everything, *without_experts = used
    assert everything - max(without_experts) > experts_bytes(experts)


def experts_bytes(path: Path) -> int:
    return sum(int(tensor.n_bytes) for tensor in GGUFReader(path).tensors if "_exps" in tensor.name)


def load(*servers: str, **options: Any) -> None:
    load_engine(MODEL, LoadOptions(context_size=256, rpc=",".join(servers), **options))


@pytest.mark.parametrize("options", [{"fit": "off"}, {"gpu_layers": -1}], ids=["off", "all"])
def test_a_model_that_is_too_large_for_its_device(options: dict[str, Any]) -> None:
    with RpcDevice(4 * MIB) as device, pytest.raises(ModelError, match="allocate"):
        apart(partial(load, **options), device.address)


def chosen_and_taken(model: Path, options: dict[str, Any], server: str) -> tuple[str, int, Ended]:
    """What was chosen, in words; what the device has of it; and an answer."""
    given = LoadOptions(slots=2, threads=1, kernels="plain", rpc=server, **options)
    engine = load_engine(model, given)
    assert isinstance(engine, LlamaEngine)
    assert engine.model.fit is not None
    (device,) = (each for _, each in loaded_devices().gpus())
    taken = device.memory - device.free
    found = generate(engine, sequences(engine, GREEDY)[:4], slots=2)[0]
    return engine.model.fit, taken, found


@pytest.mark.parametrize("memory", [2, 64, 300])
def test_what_fits_is_on_the_device_and_the_rest_in_memory(
    experts: Path, of_experts: Ended, memory: int
) -> None:
    """No size of a device keeps the model from being served, and its memory is never overfull."""
    options = {"context_size": 512, "fit_target": 0}
    with RpcDevice(memory * MIB) as device:
        fit, taken, found = apart(chosen_and_taken, experts, options, device.address)
        assert taken <= memory * MIB
    assert found == of_experts
    assert ("no layer" in fit) == (taken < MIB)


def test_no_server_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(ModelError, match=f"--rpc: {address} cannot be reached: .*refused"):
        use_servers([address])


def test_a_server_that_serves_another_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ModelError, match="another may have it"):
            use_servers([address], deadline=0.05)


_HELLO, _FULL, _LENGTH = 14, 24, 8


@contextmanager
def stand_in(version: Version | None, *, body: int = _FULL) -> Iterator[str]:
    """The address of a server of this version, whose clients send so many bytes with a hello.

    It hangs up on all others, and on everybody without a version.
    """

    def greet(client: socket.socket) -> None:
        with client, client.makefile("rwb") as stream:
            command, size = stream.read(1), int.from_bytes(stream.read(_LENGTH), "little")
            assert command == bytes([_HELLO])
            stream.read(size)
            if size == body and version is not None:
                answer = bytes(version) + (bytes(1 + _FULL) if body else b"")
                stream.write(len(answer).to_bytes(_LENGTH, "little") + answer)

    def serve() -> None:
        while True:
            try:
                greet(listener.accept()[0])
            except OSError:
                return  # the listener is closed

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(HANGS)


def test_another_kind_of_server() -> None:
    with stand_in(None) as address, pytest.raises(ModelError, match=f"{address} hangs up; it must"):
        use_servers([address])


@pytest.mark.parametrize(
    ("version", "body"), [((8, 0, 0), _FULL), ((7, 1, 0), _FULL), ((3, 6, 1), 0)]
)
def test_a_server_of_another_version(version: Version, body: int) -> None:
    """llama.cpp would end the process."""
    with stand_in(version, body=body) as address:
        said = f"^--rpc: {address} speaks version {'.'.join(map(str, version))} .* agent 7.0.0; run"
        with pytest.raises(ModelError, match=said):
            use_servers([address])


def test_which_versions_llama_cpp_talks_to() -> None:
    major, minor, patch = PROTOCOL
    assert speaks(PROTOCOL) and speaks((major, minor, patch + 1))
    assert not speaks((major, minor + 1, patch)) and not speaks((major - 1, minor, patch))


def version_of(server: str) -> Version:
    """As the server itself says it."""
    host, _, port = server.rpartition(":")
    with socket.create_connection((host, int(port)), HANGS) as connection:
        stream = connection.makefile("rwb")
        stream.write(bytes([_HELLO]) + _FULL.to_bytes(_LENGTH, "little") + bytes(_FULL))
        stream.flush()
        major, minor, patch = stream.read(_LENGTH + 3)[_LENGTH:]
    return major, minor, patch


def test_the_version_is_that_of_the_library() -> None:
    """A newer llama.cpp may speak another one: then `PROTOCOL` has to follow."""
    with RpcDevice(16 * MIB) as device:
        assert version_of(device.address) == PROTOCOL
