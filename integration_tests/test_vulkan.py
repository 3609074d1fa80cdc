"""llama.cpp's Vulkan backend, on a Vulkan device that the CPU is: `make vulkan-tests`.

Mesa's lavapipe computes what a GPU would, slowly: so these are the tests of a device with memory of
its own, whose numbers are not the CPU's. `LLAMA_CPP_LIB_PATH` names libraries that have it.
`TEST_DEVICE` names another device, such as CUDA0.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from arriero.agent.engine.llama.backends import library
from arriero.agent.engine.llama.devices import loaded_devices
from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.model_error import ModelError
from integration_tests.corpus import Answer, generate, plain_cases
from integration_tests.daemons import MODEL, Fleet
from integration_tests.shared_fleets import SharedFleets
from tests.agent.engine.llama.running import GREEDY, Ended, answers, apart, sequences
from tests.agent.engine.llama.running import generate as generate_with
from tests.rpc_device import BoundedMemory

pytestmark = pytest.mark.skipif(
    not os.environ.get("LLAMA_CPP_LIB_PATH"),
    reason="llama.cpp has no Vulkan backend here: `make vulkan-tests` builds it, in minutes",
)
on_the_loop = pytest.mark.asyncio(loop_scope="session")

NAME = os.environ.get("TEST_DEVICE", "Vulkan0")
DEVICE: dict[str, object] = {"device": NAME, "gpu_layers": -1}
MIB = 2**20
SLOW = 1500.0
"""Seconds that the device may take to compile what it computes with; its driver keeps that."""

EACH = 20
"""Of so many known answers one is asked for: the device takes seconds for some."""

NUM_TEXTS = 3
"""The device compiles shaders for each number of rows up to eight, and takes minutes for the larger
of them: these texts are longer than that, and two are generated at a time."""

STORY = "The driver counts the mules, the bells and the bags of salt before each bridge. "
ASK: dict[str, Any] = {"prompt": STORY * 2, "max_tokens": 16, "ignore_eos": True}


@pytest.fixture(scope="session")
def compiled() -> tuple[Ended, int]:
    """Greedy answers of the device, and the bytes it had; agents start on it in seconds now."""
    found: tuple[Ended, int] = apart(generated_and_used, MODEL, dict(DEVICE), deadline=SLOW)
    return found


@pytest_asyncio.fixture(loop_scope="session")
async def on_device(compiled: object, fleets: SharedFleets) -> AsyncIterator[Fleet]:
    """Shared: a balancer, and an agent with the whole model on the device."""
    fleet = await fleets.with_agent(context_size=2048, **DEVICE)
    yield fleet
    await fleet.until_idle()


async def ask(fleet: Fleet, **fields: Any) -> Answer:
    answer = await generate(fleet.http, fleet.inference, ASK | fields)
    assert answer.end["event"] == "done", answer.end
    return answer


def cached(answer: Answer) -> int:
    return int(answer.end["usage"]["cached_tokens"])


@on_the_loop
async def test_doctor_and_the_agents_view_name_the_device(on_device: Fleet) -> None:
    environment = {"ARRIERO_URL": on_device.inference, "ARRIERO_MANAGEMENT": on_device.management}
    doctor = await on_device.start("arriero", "doctor", env=environment)
    await doctor.exit_code()
    said = " ".join(doctor.stdout)  # lines are broken where they are long
    assert f"{NAME} (" in said
    if NAME == "Vulkan0":
        assert "with kernels for" in said, "the libraries are a portable build's"
        assert "Vulkan0 (llvmpipe" in said
    [agent] = await on_device.view("agents")
    [*_, device] = agent["devices"]
    assert device["name"] == NAME
    assert agent["issues"] == []


@on_the_loop
async def test_greedy_answers_are_those_of_the_cpu(on_device: Fleet) -> None:
    """Each is the one that the model was trained to give, which the CPU gives, too."""
    for case in plain_cases()[::EACH]:
        answer = await generate(on_device.http, on_device.inference, case.body)
        assert answer.text == case.answer, case.id


def generated_and_used(model: Path, options: dict[str, Any]) -> tuple[Ended, int]:
    """Greedy answers, and how many bytes the device has of model, cache and buffers."""
    bounded = BoundedMemory(library(), 2**40, NAME)
    return answers(model, options, NUM_TEXTS), bounded.used


def test_tokens_are_those_of_the_cpu_and_the_model_is_on_the_device(
    compiled: tuple[Ended, int],
) -> None:
    found, used = compiled
    assert used > MODEL.stat().st_size
    assert found == apart(answers, MODEL, {"device": "none", "kernels": "plain"}, NUM_TEXTS)


@on_the_loop
async def test_sampling_goes_by_the_seed(on_device: Fleet) -> None:
    """The rows of logits are read from the device."""
    drawn = {"temperature": 1.0, "top_k": 40, "top_p": 0.95}
    first, again, other = [(await ask(on_device, seed=seed, **drawn)).text for seed in (1, 1, 2)]
    assert first == again != other
    scored = await ask(on_device, temperature=0, logprobs=True, top_logprobs=3)
    found = [each for event in scored.events for each in event.get("logprobs") or ()]
    assert len(found) > 3, "markers have none"
    for each in found:
        best = [token["logprob"] for token in each["top_logprobs"]]
        assert each["logprob"] <= best[0] <= 0 and best == sorted(best, reverse=True)


@on_the_loop
@pytest.mark.usefixtures("compiled")
async def test_a_prefix_is_not_computed_again(bare_fleet: Fleet) -> None:
    """Neither where it lies on the device, nor after others took its cells: it was parked."""
    await bare_fleet.start_agent(slots=1, context_size=256, kv_cells=256, **DEVICE)
    prompt = "A turn at the mill. " + STORY * 2
    first, again = [await ask(bare_fleet, prompt=prompt, temperature=0) for _ in range(2)]
    num_tokens = first.end["usage"]["prompt_tokens"]
    assert (cached(first), cached(again)) == (0, num_tokens - 1)
    others = [
        await ask(bare_fleet, prompt=f"{each} times the bells. " + STORY * 2, temperature=0)
        for each in range(4)
    ]
    assert sum(each.end["usage"]["prompt_tokens"] for each in others) > 256 - num_tokens
    parked = await ask(bare_fleet, prompt=prompt, temperature=0)
    assert cached(parked) == num_tokens - 1
    assert first.text == again.text == parked.text


@on_the_loop
@pytest.mark.usefixtures("compiled")
async def test_states_on_disk_go_back_to_the_device(bare_fleet: Fleet, tmp_path: Path) -> None:
    settings = {"cache_dir": tmp_path, "context_size": 2048, **DEVICE}
    first = await bare_fleet.start_agent(**settings)
    saved = await ask(bare_fleet, temperature=0, cache_key="road", save_cache=True)
    assert await first.terminate() == 0
    second = await bare_fleet.start_agent(**settings)
    again = await ask(bare_fleet, temperature=0, cache_key="road")
    assert cached(again) == again.end["usage"]["prompt_tokens"] - 1
    assert again.text == saved.text != ""
    assert await second.terminate() == 0


def load_bounded(memory: int, options: dict[str, Any]) -> tuple[str, int, Ended]:
    """On a device with so many bytes: what was chosen, what it took of them, and an answer."""
    bounded = BoundedMemory(library(), memory, NAME)
    [(_, device)] = loaded_devices().gpus()
    assert device.memory == memory
    given = LoadOptions(slots=2, threads=1, context_size=256, device=NAME, **options)
    engine = load_engine(MODEL, given)
    assert isinstance(engine, LlamaEngine)
    found = generate_with(engine, sequences(engine, GREEDY)[:NUM_TEXTS], slots=2)[0]
    return engine.model.fit or "", bounded.used, found


def test_all_layers_on_a_device_with_too_little_memory() -> None:
    with pytest.raises(ModelError, match="allocate"):
        apart(load_bounded, 4 * MIB, {"gpu_layers": -1}, deadline=SLOW)


@pytest.mark.parametrize("memory", [4 * MIB, 40 * MIB])
def test_what_fits_is_on_the_device_and_the_rest_in_memory(memory: int) -> None:
    fit, used, found = apart(load_bounded, memory, {"fit_target": 0}, deadline=SLOW)
    assert used <= memory
    assert "layer" in fit
    assert found == apart(answers, MODEL, {"device": "none", "kernels": "plain"}, NUM_TEXTS)
