"""Issues that say why an engine process refused a change, and what to do."""

from ..shared.messages import Issue


def template_refused(reason: str) -> Issue:
    """Return the issue that says that the model keeps its old chat template."""
    return Issue(
        code="chat_template",
        message=f"the change is refused: {reason}",
        hint="fix the chat template; until then the model is served as before",
    )


def adapter_refused(name: str, reason: str) -> Issue:
    """Return the issue that an adapter cannot be loaded, so the model keeps its old adapters."""
    return Issue(
        code="adapter",
        message=f"adapter `{name}`: {reason}",
        hint="name another file, or leave the adapter out; until then the model is served with "
        "the adapters that it had",
        adapter=name,
    )


def adapter_left_out(name: str, reason: str) -> Issue:
    """Return the issue that an adapter cannot be loaded, so the model is served without it."""
    return Issue(
        code="adapter",
        message=f"adapter `{name}`: {reason}",
        hint="name another file, or leave the adapter out; until then the model is served without "
        "this adapter",
        adapter=name,
    )


def engine_stopped(reason: str) -> Issue:
    """Return the issue that the engine stopped during the change and a new process starts."""
    return Issue(code="engine_crashed", message=f"the change is refused: {reason}")


def drafts_off(reason: str) -> Issue:
    """Return the issue that drafting failed, so the model is served without drafts."""
    return Issue(
        code="drafts_off",
        message=f"drafting is off, since it failed: {reason}",
        hint="answers stay the same but are slower; reload the agent's model to try again",
    )


def forwarder_refused() -> Issue:
    """Return the issue that the upstream server, not the fleet, decides what is served."""
    return Issue(
        code="not_supported",
        message="the change is refused: this agent serves what its upstream server has",
    )
