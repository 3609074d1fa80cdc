"""An engine for models that cannot generate: it holds the weights, and runs no sequence.

The worker's thread stays idle with this engine. The model is used only through `embedding`.
"""

from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NoReturn

from ....shared.reports.model_info import ModelInfo
from ..capacity import Capacity
from ..load_options import LoadOptions
from ..loaded_model import LoadedModel
from ..model_error import ModelError
from ..sequence import NewSequence, SequenceId
from ..step import Outcome, Step
from .embedding import LlamaEmbedding
from .model import Model


class EncoderEngine:
    """`engine.Engine` of a model without a KV cache."""

    draft_model = None
    capacity = Capacity(
        batch_size=256,  # a token for each of as many slots as there can be
        num_cells=1,
        most_mixed=1,
        num_holders=256,
        can_share=False,
        can_shift=False,
        most_parked=0,
    )

    def __init__(self, model: Model, options: LoadOptions) -> None:
        self._model = model
        self._embedding = LlamaEmbedding(model, options, has_memory=False)
        self.model = LoadedModel(
            ModelInfo(
                name=model.name,
                architecture=model.architecture,
                parameters=model.parameters,
                size_bytes=model.size_bytes,
                quantization=model.quantization,
                context_size=min(options.slot_tokens, model.trained_context),
                tasks=model.tasks(generates=False),
                longest_token=model.vocab.longest_token,
                kernels=model.kernels,
            ),
            model.vocab,
            chat_template=None,
            embedding=self._embedding,
        )

    def open(self, sequence: NewSequence) -> NoReturn:
        """Raise `RuntimeError`: an agent without slots gets no sequences."""
        raise _no_sequences(sequence.id)

    def failure(self, sequence_id: SequenceId) -> NoReturn:
        """Raise `RuntimeError`: an agent without slots gets no sequences."""
        raise _no_sequences(sequence_id)

    def close(self, sequence_id: SequenceId) -> None:
        """Do nothing: there are no sequences."""

    def execute(self, step: Step) -> Outcome:
        """Raise `RuntimeError`: an agent without slots gets no sequences."""
        raise RuntimeError(f"{step} came to a model that cannot generate")

    def stop(self, is_wanted: bool) -> None:
        """Do nothing: there are no steps."""

    def use_threads(self, threads: int, threads_batch: int) -> None:
        """Set the threads for steps of one token, and for larger steps, from now on."""
        self._embedding.threads = (threads, threads_batch)

    def load_adapter(
        self, digest: str, path: Path, turn: AbstractContextManager[object]
    ) -> NoReturn:
        """Raise `ModelError`: a model that cannot generate uses no adapters."""
        raise ModelError(f"adapter file {path} cannot be used: the model generates no text")

    def keep_adapters(self, digests: Collection[str], turn: AbstractContextManager[object]) -> None:
        """Do nothing: there are no adapters."""

    def free(self) -> None:
        """Free everything; nothing may be called afterwards."""
        self._model.free()


def _no_sequences(id: SequenceId) -> RuntimeError:
    return RuntimeError(f"sequence {id} came to a model that cannot generate")
