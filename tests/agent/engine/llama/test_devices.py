"""Which devices ggml tells of; here a stand-in for its library, since there is no GPU."""

import ctypes

from arriero.agent.engine.llama.devices import Devices, FoundDevice, loaded_devices
from tests.agent.engine.llama.fake_ggml import GGML


def test_devices_and_ggmls_handles_of_them() -> None:
    found = list(Devices(GGML).all())
    assert [handle for handle, _ in found] == [1, 2, 3, 4]
    assert [device.kind for _, device in found] == ["cpu", "gpu", "igpu", "gpu"]


def test_gpus_and_no_processors() -> None:
    assert [device for _, device in Devices(GGML).gpus()] == [
        FoundDevice("CUDA0", "NVIDIA H100", "gpu", 80 * 2**30, 70 * 2**30, "0000:c1:00.0"),
        FoundDevice("Vulkan0", "iGPU", "igpu", 4 * 2**30, 3 * 2**30, None),
        FoundDevice("CUDA1", "NVIDIA L4", "gpu", 24 * 2**30, 20 * 2**30, "0000:c2:00.0"),
    ]


def test_where_tensors_can_be_put() -> None:
    types = Devices(GGML).buffer_types()
    names = {"CPU": 101, "CUDA0": 102, "Vulkan0": 103, "CUDA1": 104}
    assert types == names | {"Vulkan0_Memory": 103}
    assert "CPU" in loaded_devices().buffer_types()


def test_the_functions_are_declared_as_in_the_header() -> None:
    """A pointer that is taken for a 32-bit number would crash the process."""
    Devices(GGML)
    assert GGML.ggml_backend_dev_get.restype is ctypes.c_void_p
    assert GGML.ggml_backend_dev_type.argtypes == (ctypes.c_void_p,)
    assert GGML.ggml_backend_dev_buffer_type.restype is ctypes.c_void_p
