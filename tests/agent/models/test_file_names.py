"""What names of model files mean."""

import pytest

from arriero.agent.models.file_names import (
    MAX_NAMED,
    other_quantisations,
    pick_file,
    quantisation_of,
)
from arriero.agent.models.port import FetchError

NAMES = [
    "README.md",
    "M-Q4_K_M.gguf",
    "M-Q4_K_S.gguf",
    "M-Q4_0_4_4.gguf",
    "M-IQ4_XS.gguf",
    "mmproj-M-F16.gguf",
    "Q8_0/M-Q8_0-00001-of-00002.gguf",
    "Q8_0/M-Q8_0-00002-of-00002.gguf",
    "M.imatrix.gguf",
]


@pytest.mark.parametrize(
    ("quantisation", "name"),
    [
        ("Q4_K_M", "M-Q4_K_M.gguf"),
        ("q4_k_m", "M-Q4_K_M.gguf"),
        ("IQ4_XS", "M-IQ4_XS.gguf"),
        ("Q8_0", "Q8_0/M-Q8_0-00001-of-00002.gguf"),
    ],
)
def test_the_one_that_fits(quantisation: str, name: str) -> None:
    assert pick_file(NAMES, quantisation, "org/repo") == name


@pytest.mark.parametrize("quantisation", ["Q4_K", "Q4_0", "F16", "Q6_K"])
def test_a_part_of_a_name_and_a_projector_do_not_fit(quantisation: str) -> None:
    with pytest.raises(FetchError) as caught:
        pick_file(NAMES, quantisation, "org/repo")
    assert caught.value.code == "not_found"
    assert caught.value.hint == "it has IQ4_XS, Q4_0_4_4, Q4_K_M, Q4_K_S, Q8_0"


def test_several_that_fit_are_named() -> None:
    names = ["A-Q4_K_M.gguf", "B-Q4_K_M.gguf", "UD-Q4_K_M/C.gguf"]
    with pytest.raises(FetchError) as caught:
        pick_file(names, "Q4_K_M", "org/repo")
    assert caught.value.code == "ambiguous"
    assert all(name in caught.value.message for name in names)
    assert caught.value.hint == "name one of them: hf://org/repo/A-Q4_K_M.gguf"


def test_a_thousand_that_fit_are_not_all_named() -> None:
    with pytest.raises(FetchError) as caught:
        pick_file([f"{n}-Q4_0.gguf" for n in range(1000)], "Q4_0", "org/repo")
    assert caught.value.message.endswith(f" and {1000 - MAX_NAMED} more")


def test_a_repository_without_models_says_so() -> None:
    with pytest.raises(FetchError) as caught:
        pick_file(["model.safetensors"], "Q4_0", "org/repo")
    assert caught.value.hint == "it has no GGUF files at all"


def test_other_quantisations_of_a_model() -> None:
    names = [*NAMES, "N-Q4_K_M.gguf", "small/m-q5_0.gguf"]
    others = other_quantisations("M-Q4_K_M.gguf", names)
    assert others == [
        "M-IQ4_XS.gguf",
        "M-Q4_0_4_4.gguf",
        "M-Q4_K_S.gguf",
        "Q8_0/M-Q8_0-00001-of-00002.gguf",
        "small/m-q5_0.gguf",
    ]
    assert other_quantisations("N-Q4_K_M.gguf", names) == []


def test_the_quantisation_that_finds_a_file() -> None:
    assert quantisation_of("M-Q4_K_S.gguf", NAMES) == "Q4_K_S"
    assert quantisation_of("Q8_0/M-Q8_0-00001-of-00002.gguf", NAMES) == "Q8_0"
    assert quantisation_of("M-Q4_K_M.gguf", [*NAMES, "N-Q4_K_M.gguf"]) is None, "ambiguous"
    assert quantisation_of("M.gguf", ["M.gguf"]) is None
