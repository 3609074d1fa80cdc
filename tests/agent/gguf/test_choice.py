"""What a model wants to find free; what is chosen is in `engine/llama/test_fitting.py`."""

from pathlib import Path
from typing import Any

from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.gguf.choice import EmptyDevice, FreeDevice, chosen, claims
from arriero.agent.gguf.memory_estimate import read_sizes
from arriero.shared.models.assignments import HOST
from tests.agent.gguf.gguf_files import header

MIB, GIB = 2**20, 2**30
MODEL = Path(__file__).parents[3] / "demo" / "arriero-demo.gguf"
ONE, OTHER = EmptyDevice("ONE", 2 * GIB), EmptyDevice("OTHER", 2 * GIB)


def claimed(path: Path, *devices: FreeDevice, **options: Any) -> dict[str, int]:
    wanted = LoadOptions(**{"slots": 2, "fit_target": MIB, "host_cache": 0, **options})
    found = claims(read_sizes(path), wanted, devices, 64 * GIB)
    assert found is not None
    return found


def test_a_model_claims_the_devices_that_it_may_have() -> None:
    whole = claimed(MODEL, ONE)
    assert whole.keys() == {HOST, "ONE"} and whole["ONE"] > whole[HOST] // 10
    divided = claimed(MODEL, ONE, OTHER)
    assert divided.keys() == {HOST, "ONE", "OTHER"} and divided["ONE"] < whole["ONE"]
    assert claimed(MODEL, OTHER).keys() == {HOST, "OTHER"}
    for alone in (claimed(MODEL), claimed(MODEL, ONE, gpu_layers=0)):
        assert alone.keys() == {HOST} and alone[HOST] > whole[HOST]


def test_what_has_to_stay_free_of_a_device_is_claimed_too() -> None:
    wide = claimed(MODEL, ONE, fit_target=GIB)
    assert wide["ONE"] - claimed(MODEL, ONE)["ONE"] == GIB - MIB
    too_small = EmptyDevice("ONE", 4 * MIB)
    forced = claimed(MODEL, too_small, gpu_layers=-1)
    assert forced["ONE"] > 4 * MIB, "what was set is claimed, though it cannot be had"
    assert claimed(MODEL, too_small).keys() == {HOST}


def test_the_smallest_context_is_claimed_and_what_is_chosen_is_more() -> None:
    options = LoadOptions(slots=8, fit_target=MIB, host_cache=0, fit_ctx=512, fit="on")
    file = read_sizes(MODEL)
    found = claims(file, options, [ONE], 64 * GIB)
    fitted = chosen(file, options, [ONE], host=64 * GIB)
    assert found is not None and fitted is not None
    assert fitted.held.keys() == found.keys() == {HOST, "ONE"}
    assert fitted.held["ONE"] == fitted.fit.needed[0] > found["ONE"] - MIB
    assert fitted.options.num_cells > 8 * 512


def test_a_header_that_says_too_little(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header({"general.architecture": "llama"}))
    assert claims(read_sizes(path), LoadOptions(), [ONE], GIB) is None
