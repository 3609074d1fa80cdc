"""Tells which agents can go on with each other's answers: those of the same fingerprint.

It is made of what the same request and the same tokens must mean on both: the model file, its
vocabulary, the chat template, the family that reads answers, the model's sampling defaults, the
options of the engine that count, and how answers go on. How fast or with which layout an agent
computes makes no difference, unless it is deterministic: then the other one has to compute the same
numbers.
"""

from dataclasses import astuple
from hashlib import blake2b

from ...shared.continuation import CONTINUATION_VERSION
from ..engine.load_options import LoadOptions
from ..engine.loaded_model import Vocab
from ..engine.prompt_store.stored_prompt import ModelIdentity

_DIGEST_BYTES = 16


def fingerprint(
    model: ModelIdentity,
    options: LoadOptions,
    vocab: Vocab,
    traits: tuple[str, ...],
    arithmetic: str | None = None,
) -> str:
    """The fingerprint of an agent that prepares and reads answers by these `traits`.

    `arithmetic` is that of a deterministic engine.
    """
    parts = (
        CONTINUATION_VERSION,
        *astuple(model),
        *options.counted("fingerprint"),
        vocab.size,
        *sorted(vocab.end_tokens),
        vocab.bos_text,
        vocab.eos_text,
        *traits,
        *(() if arithmetic is None else ("deterministic", arithmetic)),
    )
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(b"%d %b" % (len(text := str(part).encode(errors="replace")), text))
    return digest.hexdigest()
