"""Whether two models have the same vocabulary, so that one can draft for the other."""

import llama_cpp.llama_cpp as llama_cpp

from ...model_error import ModelError
from ..model import Model

_KINDS = {
    llama_cpp.LLAMA_VOCAB_TYPE_SPM: "SentencePiece",
    llama_cpp.LLAMA_VOCAB_TYPE_BPE: "byte-level BPE",
    llama_cpp.LLAMA_VOCAB_TYPE_WPM: "WordPiece",
    llama_cpp.LLAMA_VOCAB_TYPE_UGM: "Unigram",
}


def check_pair(model: Model, draft: Model) -> None:
    """Raises `ModelError`, which names both files, unless `draft` can draft for `model`."""
    difference = _difference(model, draft)
    if difference is not None:
        raise ModelError(
            f"--draft-model {draft.path} cannot draft for {model.path}: {difference}; take a "
            "smaller model of the same family"
        )


def _difference(model: Model, draft: Model) -> str | None:
    """What is different, in words; `None` where they go together."""
    ours, theirs = model.vocab, draft.vocab
    if not draft.can_share:
        return (
            "its sequences cannot give up their last tokens (recurrent, hybrid or sliding window)"
        )
    kinds = [llama_cpp.llama_vocab_type(vocab.handle) for vocab in (ours, theirs)]
    if kinds[0] != kinds[1]:
        here, there = (_KINDS.get(kind, str(kind)) for kind in kinds)
        return f"its vocabulary is of another type ({there} instead of {here})"
    if ours.size != theirs.size:
        return f"its vocabulary has {theirs.size} tokens instead of {ours.size}"
    for token in range(ours.size):
        if (text := theirs.name(token)) != (wanted := ours.name(token)):
            return f"its token {token} is {_quoted(text)} instead of {_quoted(wanted)}"
    if ours.end_tokens != theirs.end_tokens:
        return "other tokens of its vocabulary end an answer"
    return None


def _quoted(text: bytes) -> str:
    return repr(text.decode("utf-8", "replace"))
