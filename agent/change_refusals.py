"""Why an engine process does not serve all that it should, as issues that say what to do."""

from ..shared.messages import Issue


def template_refused(reason: str) -> Issue:
    """The model is served as before, without the new chat template."""
    return Issue(
        code="chat_template",
        message=f"the change is refused: {reason}",
        hint="mend the chat template; until then the model is served as before",
    )


def adapter_refused(name: str, reason: str) -> Issue:
    """The adapter cannot be loaded beside the model, which is served as before."""
    return Issue(
        code="adapter",
        message=f"adapter `{name}`: {reason}",
        hint="name another file, or leave the adapter out; until then the model is served with "
        "the adapters that it had",
        adapter=name,
    )


def adapter_left_out(name: str, reason: str) -> Issue:
    """The adapter cannot be loaded beside the model, which is served without it."""
    return Issue(
        code="adapter",
        message=f"adapter `{name}`: {reason}",
        hint="name another file, or leave the adapter out; until then the model is served without "
        "this adapter",
        adapter=name,
    )


def engine_stopped(reason: str) -> Issue:
    """Nothing is served any more; a new process follows."""
    return Issue(code="engine_crashed", message=f"the change is refused: {reason}")


def drafts_off(reason: str) -> Issue:
    """Making drafts failed, so the model is served without."""
    return Issue(
        code="drafts_off",
        message=f"answers come without drafts, since making drafts failed: {reason}",
        hint="answers stay the same and are slower; a reload of the agent's model tries it again",
    )


def forwarder_refused() -> Issue:
    """An upstream server decides what is served."""
    return Issue(
        code="not_supported",
        message="the change is refused: this agent serves what its upstream server has",
    )
