"""Which adapter a request is for."""

from pathlib import Path

import pytest

from arriero.agent.adapter_table import AdapterFile, AdapterTable
from arriero.shared.errors import InvalidRequest, ModelNotFound
from arriero.shared.inference import GenerateRequest
from arriero.shared.inference.adapters import AdapterChoice

TABLE = AdapterTable(
    "base:8b",
    [
        AdapterFile("loud", Path("loud.gguf"), 0.5, "aa"),
        AdapterFile("calm", Path("calm.gguf"), 1.0, "bb"),
        AdapterFile("same", Path("calm.gguf"), 2.0, "bb"),
    ],
)


def key(model: str | None, *adapters: AdapterChoice) -> str | None:
    return TABLE.key_for(GenerateRequest(prompt="x", model=model, adapters=adapters or None))


def test_a_model_may_name_an_adapter() -> None:
    assert key("base:8b:loud") == "aa*0.5"
    assert key("base:8b") is key("alias") is key(None) is None


def test_a_request_may_name_several_and_their_scales() -> None:
    loud, calm = AdapterChoice(name="loud", scale=2), AdapterChoice(name="calm")
    assert key("base:8b", loud, calm) == key(None, calm, loud) == "aa*2.0+bb*1.0"
    assert key("base:8b:calm", loud) == "aa*2.0", "in place of the model's"
    none = GenerateRequest(prompt="x", model="base:8b:loud", adapters=())
    assert TABLE.key_for(none) is None


def test_what_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(ModelNotFound, match="`gone`"):
        key("base:8b:gone")
    with pytest.raises(InvalidRequest, match=r"there are: loud, calm, same") as caught:
        key(None, AdapterChoice(name="calm"), AdapterChoice(name="gone"))
    assert caught.value.field == "adapters[1].name"
    with pytest.raises(InvalidRequest, match="used twice"):
        key(None, AdapterChoice(name="calm"), AdapterChoice(name="same"))


def test_files_are_loaded_once() -> None:
    assert TABLE.name_of("bb") == "calm"
    assert TABLE.files == {"aa": Path("loud.gguf"), "bb": Path("calm.gguf")}
    assert TABLE.names == ("loud", "calm", "same")
