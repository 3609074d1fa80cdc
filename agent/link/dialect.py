"""Which version of the protocol a connection speaks, and what that version does not know.

An agent offers its newest version first. A balancer that rejects it may be older: the next
connections offer older versions, until one is taken. After that the newest is offered again, since
the balancer may have been upgraded.
"""

from dataclasses import replace

from ...shared.errors import shortened
from ...shared.inference import MAX_COUNT
from ...shared.messages import (
    MAX_ISSUES,
    MAX_WORDS,
    OLDEST_PROTOCOL,
    PROTOCOL_VERSION,
    Hello,
    Issue,
    Status,
)
from ...shared.models.assignments import MAX_BYTES
from ...shared.reports.model_info import MAX_ARCHITECTURE, ModelInfo, Task
from ...shared.reports.statistics import Statistics

_WITH_FINGERPRINTS = 8
"""The first version in which agents say what their answers can be continued by.

And of which server they forward to.
"""

_WITH_VISION = _WITH_DRAFTS = 9
"""The first version that knows pictures in messages, draft models and adapters."""

_WITH_EVICTIONS = _WITH_SOUNDS = 10
"""The first version in which agents say what left their caches, and that they hear sounds."""

_WITH_PEERS = 11
"""The first version in which agents fetch prefixes from each other."""

_WITH_SECRETS = 13
"""The first version in which agents prove that they are the same as before."""

_WITH_ADAPTER_ISSUES = 12
"""The first version in which an issue says which adapter it is about."""


class Dialect:
    """The version that is offered, and then spoken."""

    def __init__(self) -> None:
        self.version = PROTOCOL_VERSION

    def renew(self) -> None:
        """A connection is over that was let in: offer the newest version again."""
        self.version = PROTOCOL_VERSION

    def step_down(self) -> bool:
        """The version was rejected. Whether there is an older one to offer."""
        if self.version == OLDEST_PROTOCOL:
            return False
        self.version -= 1
        return True

    @property
    def knows_evictions(self) -> bool:
        """Whether the balancer takes `Evicted`."""
        return self.version >= _WITH_EVICTIONS

    def hello(self, hello: Hello) -> Hello:
        """`hello` with the version, and nothing that the oldest version does not know.

        But for the secret: only a balancer that has given one, and so knows of them, is shown it.

        What an upstream can do is not known before the status, so it has no slots before.
        """
        is_forwarding = hello.model is not None and hello.model.upstream is not None
        return replace(
            hello,
            slots=0 if is_forwarding else hello.slots,
            protocol=self.version,
            secret=hello.secret if self.version >= _WITH_SECRETS else None,
            model=_unmarked(_within(hello.model)),
            loading=_unmarked(_within(hello.loading)),
        )

    def status(self, status: Status) -> Status:
        """`status` without what the version does not know."""
        model = _within(status.model)
        if self.version < _WITH_FINGERPRINTS:
            model = _unmarked(model)
        if model is not None and self.version < _WITH_VISION:
            model = _blind(model)
        if model is not None and self.version < _WITH_SOUNDS:
            model = _without(model, "audio")
        peer = status.peer if self.version >= _WITH_PEERS else None
        issues = tuple(map(_bounded, status.issues[:MAX_ISSUES]))
        if self.version < _WITH_ADAPTER_ISSUES:
            issues = tuple(replace(issue, adapter=None) for issue in issues)
        return replace(status, model=model, peer=peer, issues=issues)

    def statistics(self, statistics: Statistics) -> Statistics:
        """`statistics` without what the version does not know."""
        if self.version < _WITH_PEERS:
            statistics = replace(statistics, fetches=None)
        if self.version >= _WITH_DRAFTS:
            return statistics
        return replace(statistics, num_draft_cells=None, num_media_bytes=None)


def _within(model: ModelInfo | None) -> ModelInfo | None:
    """`model` with no more than may be sent, whatever its file says."""
    if model is None:
        return None
    return replace(
        model,
        architecture=shortened(model.architecture, MAX_ARCHITECTURE),
        parameters=min(model.parameters, MAX_BYTES),
        size_bytes=min(model.size_bytes, MAX_BYTES),
        context_size=min(model.context_size, MAX_COUNT),
        longest_token=min(model.longest_token, MAX_COUNT),
    )


def _bounded(issue: Issue) -> Issue:
    """`issue` with words that are not too long to be sent."""
    message, hint = shortened(issue.message, MAX_WORDS), shortened(issue.hint, MAX_WORDS)
    return replace(issue, message=message, hint=hint)


def _unmarked(model: ModelInfo | None) -> ModelInfo | None:
    if model is None:
        return None
    return replace(_blind(model), fingerprint=None, upstream=None)


def _blind(model: ModelInfo) -> ModelInfo:
    seen = _without(model, "vision", "audio")
    if seen.draft_model is None and not seen.adapters:
        return seen
    return replace(seen, draft_model=None, adapters=())


def _without(model: ModelInfo, *left_out: Task) -> ModelInfo:
    if not set(left_out).intersection(model.tasks):
        return model
    return replace(model, tasks=tuple(task for task in model.tasks if task not in left_out))
