import signal

import pytest

from arriero.agent.engine.model_error import DOES_NOT_FIT, does_not_fit
from arriero.agent.models.model_file import ModelFile
from arriero.agent.models.port import OtherFile
from arriero.agent.supervision.load_failures import (
    adapters_crashed,
    load_failed,
    too_large,
    too_large_for_gpus,
)


def test_too_large_for_the_host() -> None:
    issue = too_large(5 * 2**30, 2**30)
    assert issue.code == "too_large"
    assert "about 5.0 GiB of memory; this host has 1.0 GiB" in issue.message
    assert issue.message.endswith("which is 4.0 GiB too little")
    assert issue.hint.startswith("choose a smaller quantisation")
    nearest = too_large(5 * 2**30, 2**30, 2048)
    assert nearest.hint.startswith("with a context of 2048 tokens a slot it fits; or choose")
    assert "needs about 12 MiB" in too_large(12 * 2**20, 2**20).message
    smaller = too_large(5 * 2**30, 2**30, other=OtherFile("hf://org/repo:Q4_0", 2**29))
    assert smaller.hint.startswith("hf://org/repo:Q4_0 (512 MiB) fits; or choose")


def test_what_does_not_fit_names_the_nearest_thing_that_would() -> None:
    others = tuple(
        OtherFile(f"hf://org/repo:{name}", gib * 2**30)
        for name, gib in {"Q8_0": 8, "Q5_0": 5, "Q4_0": 4, "Q2_K": 2}.items()
    )
    file = ModelFile(
        "m.gguf",
        needed=10 * 2**30,
        least=9 * 2**30,
        shorter=((2048, 7 * 2**30), (1024, 6 * 2**30)),
        bytes=8 * 2**30,
        others=others,
    )
    issue = load_failed(1, does_not_fit(3 * 2**30 - 1, "failed to allocate"), file)
    assert issue.code == "does_not_fit"
    assert "which has about 3.00 GiB too little" in issue.message
    assert issue.hint.startswith(
        "with a context of 1024 tokens a slot it fits; hf://org/repo:Q5_0 (5.0 GiB) fits; or "
    )
    unknown = load_failed(1, does_not_fit(0, "failed to allocate"), file)
    assert unknown.hint.startswith("choose a smaller quantisation")
    assert load_failed(1, does_not_fit(2**40, "x"), file).hint == unknown.hint
    assert load_failed(1, does_not_fit(2**30, "x")).hint == unknown.hint


def test_too_large_for_its_gpus() -> None:
    issue = too_large_for_gpus(5 * 2**30, 2**30)
    assert issue.code == "too_large"
    assert "about 5.0 GiB on GPUs; this host's have 1.0 GiB" in issue.message
    assert issue.message.endswith("which is 4.0 GiB too little")
    assert issue.hint.startswith("let the agent choose what goes there (--gpu-layers auto)")
    shorter = too_large_for_gpus(5 * 2**30, 2**30, 2048)
    assert shorter.hint.startswith("with a context of 2048 tokens a slot it fits; or let the")


@pytest.mark.parametrize(
    ("code", "reason", "expected", "said"),
    [
        (1, "wrong tensor", "load_failed", "wrong tensor"),
        (1, None, "load_failed", "ended with exit code 1"),
        (-signal.SIGABRT, None, "load_failed", "was ended by SIGABRT"),
        (1, f"{DOES_NOT_FIT}, not even", "does_not_fit", "not even"),
        (-signal.SIGKILL, None, "too_large", "the system may be short of memory"),
    ],
)
def test_a_load_that_failed(code: int, reason: str | None, expected: str, said: str) -> None:
    issue = load_failed(code, reason)
    assert issue.code == expected
    assert said in issue.message
    assert issue.hint


def test_a_crash_while_adapters_changed() -> None:
    issue = adapters_crashed(-signal.SIGABRT, None)
    assert issue.code == "adapter"
    assert "while it changed its adapters, the engine process was ended by SIGABRT" in issue.message
