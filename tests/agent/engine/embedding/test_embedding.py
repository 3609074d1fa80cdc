from arriero.agent.engine.embedding.embedding import EmbeddingContext, EmbeddingModel
from tests.agent.engine.fake_embedding import FakeContext, FakeEmbedding


def test_a_fake_is_one() -> None:
    model: EmbeddingModel = FakeEmbedding()
    context: EmbeddingContext = FakeContext(max_tokens=1, splits=True, pools=False)
    assert model.default_pooling == "mean" and context.max_tokens == 1
