"""What is chosen fits, and what does not is given up in its order."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.gguf.fit import (
    Fit,
    Gpu,
    LayerBytes,
    Sizes,
    SizesWith,
    Wanted,
    _places,
    cache_in_words,
    fit,
    place_in_words,
)

MIB, GIB = 2**20, 2**30
OUTPUT = 300 * MIB
COMPUTE = 200 * MIB
MIXTURE = [LayerBytes(50 * MIB)] * 2 + [LayerBytes(50 * MIB, experts=500 * MIB)] * 38
PLAIN = [LayerBytes(100 * MIB)] * 32
FIXED = Wanted(usual=4096, least=4096, most=4096)
OPEN = Wanted(usual=32_768, least=4096, most=2**17, can_be_smaller=True)
CELL = 2**12
"""Bytes of a cell in a layer."""


def gpus(*gib: float) -> list[Gpu]:
    return [Gpu(f"CUDA{number}", int(size * GIB), size) for number, size in enumerate(gib)]


def weights(layers: list[LayerBytes]) -> SizesWith:
    """The layers without a cache."""
    return lambda _cells, _is_smaller: Sizes(layers=tuple(layers), output=OUTPUT, compute=COMPUTE)


def with_cache(layers: list[LayerBytes]) -> SizesWith:
    def sizes(cells: int, is_smaller: bool) -> Sizes:
        cache = cells * CELL // (2 if is_smaller else 1)
        full = tuple(LayerBytes(each.near + cache, each.experts) for each in layers)
        return Sizes(layers=full, output=OUTPUT, compute=COMPUTE, host=GIB)

    return sizes


def placed(layers: list[LayerBytes], *gib: float, wanted: Wanted = FIXED) -> Fit:
    return fit(weights(layers), gpus(*gib), 1000 * GIB, wanted)


def words(found: Fit, layers: list[LayerBytes], *gib: float) -> str:
    return place_in_words(found, layers, gpus(*gib), 1000 * GIB)


def test_what_fits_is_on_the_gpu_whole() -> None:
    found = placed(MIXTURE, 40)
    assert (found.gpu_layers, found.cpu_experts) == (41, 0)
    assert found.needed == ((40 * 50 + 38 * 500) * MIB + OUTPUT + COMPUTE,)
    assert words(found, MIXTURE, 40) == "40 of 40 layers on CUDA0 (21.0 of 40.0 GiB)"


def test_experts_go_first_and_no_more_than_must() -> None:
    found = placed(MIXTURE, 12)
    assert (found.gpu_layers, found.cpu_experts) == (41, 21)  # of 19 layers: the first 2 have none
    (needed,) = found.needed
    assert needed <= 12 * GIB < needed + 500 * MIB
    assert found.host == 19 * 500 * MIB
    assert words(found, MIXTURE, 12) == (
        f"40 of 40 layers on CUDA0 ({needed / GIB:.1f} of 12.0 GiB), experts of 19 layers in memory"
    )


def test_then_layers() -> None:
    found = placed(MIXTURE, 1.5)
    assert (found.gpu_layers, found.cpu_experts) == (21, 40)
    assert placed(PLAIN, 2).gpu_layers == 16
    assert words(placed(PLAIN, 2), PLAIN, 2) == "15 of 32 layers on CUDA0 (2.0 of 2.0 GiB)"


def test_nothing_on_a_gpu_is_a_choice_too() -> None:
    found = placed(PLAIN, 0.1)
    assert (found.gpu_layers, found.needed, found.is_tight) == (0, (0,), False)
    assert words(found, PLAIN, 0.1) == "no layer on CUDA0 (0.1 GiB): all 32 in memory"


def test_then_the_type_of_the_cache_and_then_its_cells() -> None:
    sizes = with_cache(PLAIN)

    def cells(host: float) -> tuple[int, int, bool, bool]:
        found = fit(sizes, gpus(0.1), int(host * GIB), OPEN)
        return found.gpu_layers, found.cells, found.is_smaller, found.is_tight

    weight = (32 * 100 * MIB + OUTPUT + COMPUTE) / GIB + 1
    assert cells(weight + 4.1) == (0, 32_768 + 256 * 3, False, False)
    assert cells(weight + 4) == (0, 32_768, False, False)
    assert cells(weight + 3.9) == (0, 32_768, True, False)
    assert cells(weight + 2) == (0, 32_768, True, False)
    assert cells(weight + 1.5) == (0, 24_576, True, False)
    assert cells(weight + 0.25) == (0, 4096, True, False)
    assert cells(weight + 0.2) == (0, 4096, True, True)


def test_what_is_missing_counts_where_it_is_least() -> None:
    size = 32 * 100 * MIB + OUTPUT + COMPUTE
    on_host = fit(with_cache(PLAIN), [], size, OPEN)
    assert on_host.missing == on_host.host - size > 0
    half = [Gpu("CUDA0", size // 2, 1.0)]
    found = fit(with_cache(PLAIN), half, 0, replace(OPEN, least=OPEN.usual))
    assert found.gpu_layers == 0  # memory of the host may be swapped; that of a GPU not
    assert 0 < found.missing < found.host - size // 4


def test_a_number_that_is_set_stays() -> None:
    experts = Wanted(usual=4096, least=4096, most=4096, cpu_experts=5)
    assert placed(MIXTURE, 100, wanted=experts).cpu_experts == 5
    found = placed(MIXTURE, 12, wanted=experts)
    assert found.cpu_experts == 5
    assert 0 < found.gpu_layers < 41
    layers = Wanted(usual=4096, least=4096, most=4096, gpu_layers=10)
    assert placed(MIXTURE, 100, wanted=layers).gpu_layers == 10
    found = placed(PLAIN, 0.1, wanted=layers)
    assert (found.gpu_layers, found.is_tight) == (10, True)


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
    found = fit(weights(PLAIN), given, 1000 * GIB, FIXED)
    assert found.gpu_layers == 16
    assert found.needed[0] <= GIB


def test_words() -> None:
    found = fit(weights(PLAIN), [], 8 * GIB, FIXED)
    said = "32 layers in memory (3.6 of 8.0 GiB)"
    assert place_in_words(found, PLAIN, [], 8 * GIB) == said
    four = {"types": "q8_0", "slots": 4, "context_size": 32_768}
    assert cache_in_words(**four, cells=2**17) == "cache q8_0, 4 slots of 32,768"  # type: ignore[arg-type]
    shared = "cache q8_0, 4 slots of 32,768 that share 40,960"
    assert cache_in_words(**four, cells=40_960) == shared  # type: ignore[arg-type]
    assert cache_in_words(types="f16", slots=1, context_size=64, cells=64) == (
        "cache f16, 1 slot of 64"
    )


LAYERS = st.sampled_from([MIXTURE, PLAIN, []])


@given(
    gib=st.lists(st.floats(0.0, 30), max_size=4),
    host=st.floats(0.0, 40),
    experts=st.none() | st.integers(1, 40),
    can_be_smaller=st.booleans(),
    layers=LAYERS,
)
def test_nothing_is_overfull_and_nothing_is_chosen_outside_of_what_is_wanted(
    gib: list[float],
    host: float,
    experts: int | None,
    can_be_smaller: bool,
    layers: list[LayerBytes],
) -> None:
    wanted = Wanted(
        usual=32_768, least=4096, most=2**17, cpu_experts=experts, can_be_smaller=can_be_smaller
    )
    found = fit(with_cache(layers), gpus(*gib), int(host * GIB), wanted)
    if found.is_tight:
        # The least that can be chosen is in host memory whole, and that is too small for it.
        assert (found.gpu_layers, found.cells) == (0, 4096)
        assert found.host > int(host * GIB)
    else:
        assert found.host <= int(host * GIB)
        for needed, gpu in zip(found.needed, gpus(*gib), strict=True):
            assert needed <= gpu.free
    assert 0 <= found.gpu_layers <= len(layers) + 1
    assert 4096 <= found.cells <= 2**17
    assert can_be_smaller or not found.is_smaller
    assert place_in_words(found, layers, gpus(*gib), int(host * GIB))
    # What comes later is given up only where what comes before is: the cells last of all.
    if found.cells < 32_768:
        assert found.is_smaller == can_be_smaller
    if found.is_smaller and gib:
        assert found.gpu_layers == 0 or found.host > 0


@given(st.floats(0.5, 30))
def test_more_memory_takes_nothing_away(gib: float) -> None:
    less, more = placed(MIXTURE, gib), placed(MIXTURE, gib + 1)
    assert (more.gpu_layers, -more.cpu_experts) >= (less.gpu_layers, -less.cpu_experts)


@given(host=st.floats(0, 40), more=st.floats(0, 10))
def test_a_larger_host_has_no_smaller_cache(host: float, more: float) -> None:
    """Of the type that is wanted before the smaller one, and then by cells."""

    def rank(gib: float) -> tuple[bool, bool, int]:
        found = fit(with_cache(PLAIN), [], int(gib * GIB), OPEN)
        return not found.is_tight, not found.is_smaller, found.cells

    assert rank(host + more) >= rank(host)
