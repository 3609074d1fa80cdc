"""Placements: what fits is on GPUs, and what does not is given up in its order."""

from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.gguf.fit import Fit, Gpu, LayerBytes, _places, explain, fit

MIB, GIB = 2**20, 2**30
OUTPUT = 300 * MIB
COMPUTE = 200 * MIB
MIXTURE = [LayerBytes(50 * MIB)] * 2 + [LayerBytes(50 * MIB, experts=500 * MIB)] * 38
PLAIN = [LayerBytes(100 * MIB)] * 32


def gpus(*gib: float) -> list[Gpu]:
    return [Gpu(f"CUDA{number}", int(size * GIB), size) for number, size in enumerate(gib)]


def placed(layers: list[LayerBytes], *gib: float, cpu_experts: int | None = None) -> Fit:
    return fit(layers, OUTPUT, gpus(*gib), compute=COMPUTE, cpu_experts=cpu_experts)


def test_what_fits_is_on_the_gpu_whole() -> None:
    found = placed(MIXTURE, 40)
    assert found == Fit(41, 0, ((40 * 50 + 38 * 500) * MIB + OUTPUT + COMPUTE,))
    assert explain(found, MIXTURE, gpus(40)) == "40 of 40 layers on CUDA0 (21.0 of 40.0 GiB)"


def test_experts_go_first_and_no_more_than_must() -> None:
    found = placed(MIXTURE, 12)
    assert (found.gpu_layers, found.cpu_experts) == (
        41,
        21,
    )  # 19 layers' experts, of the first 2 none
    (needed,) = found.needed
    assert needed <= 12 * GIB < needed + 500 * MIB
    assert explain(found, MIXTURE, gpus(12)) == (
        f"40 of 40 layers on CUDA0 ({needed / GIB:.1f} of 12.0 GiB), "
        "experts of 19 of these in host memory"
    )


def test_then_layers() -> None:
    found = placed(MIXTURE, 1.5)
    assert (found.gpu_layers, found.cpu_experts) == (21, 40)
    assert placed(PLAIN, 2).gpu_layers == 16
    assert explain(placed(PLAIN, 2), PLAIN, gpus(2)) == "15 of 32 layers on CUDA0 (2.0 of 2.0 GiB)"


def test_nothing_fits() -> None:
    found = placed(PLAIN, 0.1)
    assert found == Fit(0, 0, (0,))
    said = "no layer fits on CUDA0 (0.1 GiB): all are in host memory"
    assert explain(found, PLAIN, gpus(0.1)) == said


def test_a_number_of_experts_that_is_given_stays() -> None:
    assert placed(MIXTURE, 100, cpu_experts=5).cpu_experts == 5
    found = placed(MIXTURE, 12, cpu_experts=5)
    assert found.cpu_experts == 5
    assert 0 < found.gpu_layers < 41


def test_gpus_have_layers_by_their_shares_as_llama_cpp_divides_them() -> None:
    # `std::upper_bound` over the shares' sums, of the layer's number over their count.
    assert _places([3, 1], 8) == [0, 0, 0, 0, 0, 0, 1, 1]
    assert _places([1, 1], 3) == [0, 0, 1]
    assert _places([0, 1], 3) == [1, 1, 1]
    assert _places([0, 0], 2) == [1, 1]
    first, second = placed(PLAIN, 6, 3).needed
    assert (first, second) == (22 * 100 * MIB + COMPUTE, 10 * 100 * MIB + OUTPUT + COMPUTE)


def test_a_small_gpu_with_a_large_share_is_what_counts() -> None:
    given = [Gpu("CUDA0", GIB, 1), Gpu("CUDA1", 100 * GIB, 1)]
    found = fit(PLAIN, OUTPUT, given, compute=COMPUTE)
    assert found.gpu_layers == 16
    assert found.needed[0] <= GIB


@given(
    gib=st.lists(st.floats(0.0, 30), min_size=1, max_size=4),
    cpu_experts=st.none() | st.integers(1, 40),
    layers=st.sampled_from([MIXTURE, PLAIN, []]),
)
def test_no_gpu_is_overfull(
    gib: list[float], cpu_experts: int | None, layers: list[LayerBytes]
) -> None:
    found = placed(layers, *gib, cpu_experts=cpu_experts)
    for needed, gpu in zip(found.needed, gpus(*gib), strict=True):
        assert needed <= gpu.free
    assert 0 <= found.gpu_layers <= len(layers) + 1
    assert explain(found, layers, gpus(*gib))


@given(st.floats(0.5, 30))
def test_more_memory_takes_nothing_away(gib: float) -> None:
    less, more = placed(MIXTURE, gib), placed(MIXTURE, gib + 1)
    assert (more.gpu_layers, -more.cpu_experts) >= (less.gpu_layers, -less.cpu_experts)
