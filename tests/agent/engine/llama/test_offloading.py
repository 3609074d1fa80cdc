"""How many layers GPUs are likely to hold; here they are stand-ins."""

from dataclasses import replace
from pathlib import Path

import pytest

from arriero.agent.engine.llama.devices import FoundDevice
from arriero.agent.engine.llama.offloading import MARGIN, num_layers_in, with_layers_that_fit
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.model_error import ModelError

GIB = 2**30
GPU = FoundDevice("CUDA0", "a card", "gpu", memory=16 * GIB, free=11 * GIB)


@pytest.mark.parametrize(
    ("free", "num_bytes", "expected"),
    [
        ((11 * GIB,), 20 * GIB, 20),  # of 40 layers and an output: all parts have half a GiB
        ((11 * GIB,), 2 * GIB, 41),
        ((11 * GIB, 6 * GIB), 20 * GIB, 20 + 10),
        ((11 * GIB, MARGIN // 2), 20 * GIB, 20),
        ((0,), 20 * GIB, 0),
        ((11 * GIB,), 0, 41),
    ],
)
def test_each_device_has_whole_layers_and_a_margin(
    free: tuple[int, ...], num_bytes: int, expected: int
) -> None:
    devices = [replace(GPU, free=each) for each in free]
    assert num_layers_in(devices, num_layers=40, num_bytes=num_bytes) == expected


def test_a_number_stays(model_path: Path) -> None:
    for number in (-1, 0, 7):
        options = LoadOptions(gpu_layers=number)
        assert with_layers_that_fit(model_path, options) is options


def test_without_gpus_nothing_is_offloaded(model_path: Path) -> None:
    options = LoadOptions(gpu_layers="auto")
    assert with_layers_that_fit(model_path, options) == LoadOptions(gpu_layers=0)


def test_a_device_that_is_not_there_is_refused(model_path: Path) -> None:
    with pytest.raises(ModelError, match="--device: there is no CUDA3"):
        with_layers_that_fit(model_path, LoadOptions(gpu_layers="auto", device="CUDA3"))
