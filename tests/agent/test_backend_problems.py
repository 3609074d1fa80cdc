from arriero.agent.backend_problems import problems


def test_all_is_well() -> None:
    assert problems((), ("cpu", "rpc"), {}, ()) == []
    assert problems(("NVIDIA",), ("cpu", "cuda"), {}, ("CUDA0",)) == []
    assert problems(("AMD",), ("cpu", "vulkan"), {}, ("Vulkan0",)) == []
    assert problems(("AMD", "NVIDIA"), ("cuda", "hip"), {}, ("CUDA0", "ROCm0")) == []


def test_a_gpu_without_a_backend() -> None:
    [problem] = problems(("NVIDIA",), ("cpu", "rpc"), {}, ())
    assert not problem.is_unusable
    assert problem.message == (
        "models are computed on the CPU: this host has a GPU of NVIDIA, but llama.cpp was built "
        "without a backend for this GPU"
    )
    assert "-DGGML_CUDA=on" in problem.hint
    [problem] = problems(("AMD", "NVIDIA"), ("cpu", "cuda"), {}, ("CUDA0",))
    assert "GPU of AMD" in problem.message


def test_a_backend_that_does_not_load() -> None:
    reasons = {"cuda": "libcuda.so.1: cannot open shared object file"}
    [problem] = problems((), ("cpu", "cuda"), reasons, ())
    assert problem.is_unusable
    assert "backend for CUDA does not load: libcuda.so.1" in problem.message
    assert "--device none" in problem.hint


def test_a_backend_that_finds_nothing() -> None:
    [problem] = problems(("NVIDIA",), ("cpu", "cuda", "vulkan"), {}, ())[:1]
    assert "finds no device, although this host has a GPU of NVIDIA" in problem.message


def test_a_portable_build_on_a_host_without_gpus() -> None:
    """Vulkan is in it for those that have one."""
    reasons = {"vulkan": "libvulkan.so.1: cannot open shared object file"}
    assert problems((), ("cpu", "rpc", "vulkan"), reasons, ()) == []
    [problem] = problems(("AMD",), ("cpu", "rpc", "vulkan"), reasons, ())
    assert problem.is_unusable and "libvulkan" in problem.message


def test_vulkan_beside_a_backend_that_does_it() -> None:
    assert problems(("NVIDIA",), ("cuda", "vulkan"), {}, ("CUDA0",)) == []
