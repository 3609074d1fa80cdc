"""What others know of a model can be had without llama.cpp."""

from arriero.agent.engine.llama.vocab import LlamaVocab
from arriero.agent.engine.loaded_model import LoadedModel, ModelError, Vocab
from tests.agent.engine.fake_engine import FakeEngine, FakeVocab


def test_both_vocabularies_fit_the_protocol() -> None:
    wanted = {name for name in vars(Vocab) if not name.startswith("_")}
    assert {"size", "tokenize", "piece"} <= wanted
    assert wanted <= {*dir(LlamaVocab), *LlamaVocab.__init__.__code__.co_names}
    assert wanted <= set(dir(FakeVocab))


def test_a_model_may_have_no_template() -> None:
    model = FakeEngine().model
    assert model == LoadedModel(model.info, model.vocab, None)


def test_the_error_is_its_message() -> None:
    assert str(ModelError("model file x does not exist")) == "model file x does not exist"
