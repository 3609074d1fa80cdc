"""The known models: loaded, loading, desired and remembered models, and what each can do.

The registry also resolves aliases. Requests for a known model wait in the queue; requests that no
known model can serve are refused at once. Prompts longer than every context of the fleet are also
refused at once (`PromptRoom`).

A model is known while an agent serves or loads it, and for `memory` seconds after its last agent
left. A desired model is always known. A model that an operator removes from the desired state is
not remembered. As long as no agent has had a model since the start, its abilities are unknown and
all requests for it wait.

Questions are answered from indices. Indices over all models are rebuilt only after the set of
models has changed, so agents with the same model join and leave at no cost.

Invariants: only the last report of each link counts; a model is remembered exactly when no agent
has it; at most `MAX_REMEMBERED` models are remembered.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from typing import get_args

from ...shared.errors import (
    InvalidRequest,
    ModelFailed,
    ModelNotFound,
    NotSupported,
    PromptTooLong,
    RequestError,
)
from ...shared.inference import GenerateRequest
from ...shared.inference.abilities import ABILITIES, TOKENIZER, Ability, lacking
from ...shared.inference.adapters import adapted_name
from ...shared.messages import Issue
from ...shared.reports.model_info import ModelInfo, Task
from .deadlines import earliest
from .decisions import LinkId
from .tally import Tally
from .view import ModelStatus, ModelView


@dataclass(frozen=True, slots=True)
class PromptRoom:
    """The maximum prompt lengths: in tokens, and in bytes of a text. Infinite if unknown.

    A context for `num_tokens` of a prompt also has room for one token of the answer. A prompt of
    token ids is counted. A text has at least its bytes divided by the longest token, if the
    tokenizer keeps every byte.

    Chats are never refused here, because only agents know the length of `messages` in a template.
    Prompts that may be shortened (`n_discard`) are not refused either.
    """

    num_tokens: float = inf
    num_bytes: float = inf
    longest_token: int = 1
    """The bytes of the longest token, which determine `num_bytes`."""


def room_of(infos: Iterable[ModelInfo]) -> PromptRoom:
    """Return the room of the largest context of these models; infinite if there are no models."""
    return largest(_room(info) for info in infos if "generate" in info.tasks)


def largest(rooms: Iterable[PromptRoom]) -> PromptRoom:
    """Return the largest of `rooms`; infinite if there is none."""
    all_rooms = list(rooms)
    if not all_rooms:
        return PromptRoom()
    by_bytes = max(all_rooms, key=lambda room: room.num_bytes)
    num_tokens = max(room.num_tokens for room in all_rooms)
    return PromptRoom(num_tokens, by_bytes.num_bytes, by_bytes.longest_token)


def check_length(request: GenerateRequest, room: PromptRoom) -> PromptTooLong | None:
    """Return the error for a prompt that is longer than `room`, or `None`."""
    prompt = request.prompt
    if prompt is None or request.n_discard is not None:
        return None
    if not isinstance(prompt, str):
        return _too_long(len(prompt), room) if len(prompt) > room.num_tokens else None
    num_bytes = len(prompt) if prompt.isascii() else len(prompt.encode("utf-8", "replace"))
    if num_bytes <= room.num_bytes:
        return None
    return _too_long(-(-num_bytes // room.longest_token), room, is_at_least=True)


def _room(info: ModelInfo) -> PromptRoom:
    if info.upstream is not None and not info.context_size:
        return PromptRoom()  # not every server tells
    num_tokens = max(info.context_size - 1, 0)
    longest = info.longest_token
    return PromptRoom(num_tokens, num_tokens * longest if longest else inf, longest or 1)


def _too_long(num_tokens: int, room: PromptRoom, *, is_at_least: bool = False) -> PromptTooLong:
    return PromptTooLong.of(
        num_tokens, int(room.num_tokens), is_at_least=is_at_least, field="prompt"
    )


_SENSES: tuple[Task, ...] = ("vision", "audio")


@dataclass(frozen=True, slots=True)
class Report:
    """An agent's report of its model and abilities.

    `failure` is given if the agent has the model but cannot serve it now.
    """

    info: ModelInfo
    is_loaded: bool
    abilities: frozenset[Ability]
    failure: Issue | None = None


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """Why no agent serves a desired model. The next attempt to load the model is at `until`."""

    issue: Issue
    until: float


SERVER_PAUSE = 5.0
"""The seconds after which a client may retry if an agent's upstream server is unreachable.

Agents check the server at about the same interval.
"""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a model, combined from the reports of its agents.

    `abilities` has the abilities of each agent, and `generating` those of agents that generate
    text.
    """

    view: ModelView
    tasks: frozenset[Task]
    room: PromptRoom
    abilities: frozenset[frozenset[Ability]]
    generating: frozenset[frozenset[Ability]]


def _shown(infos: Sequence[ModelInfo], tasks: frozenset[Task]) -> ModelInfo:
    """Return the facts of the first agent with the media that any of the agents accepts."""
    first = infos[0]
    more = tuple(task for task in _SENSES if task in tasks and task not in first.tasks)
    return replace(first, tasks=(*first.tasks, *more)) if more else first


@dataclass(slots=True)
class KnownModel:
    """All reports on models of one name. The reports of agents may differ."""

    last: Report
    reports: Tally[Report] = field(default_factory=Tally)
    cached: Facts | None = None

    @property
    def facts(self) -> Facts:
        if self.cached is None:
            self.cached = self._facts()
        return self.cached

    def _facts(self) -> Facts:
        reports = sorted(self.reports, key=_worth) or [self.last]
        infos = [report.info for report in reports]
        failure = reports[0].failure if len(self.reports) else None
        status: ModelStatus = "loaded" if reports[0].is_loaded else "loading"
        if failure is not None:
            status = "failed"
        tasks = frozenset(task for info in infos for task in info.tasks)
        shown = _shown(infos, tasks)
        return Facts(
            ModelView(
                info=shown,
                status=status if len(self.reports) else "unloaded",
                issues=() if failure is None else (failure,),
            ),
            tasks,
            room_of(infos),
            frozenset(report.abilities for report in reports),
            frozenset(each.abilities for each in reports if "generate" in each.info.tasks),
        )


def _worth(report: Report) -> tuple[bool, bool]:
    """Return the sort key of a report: serving agents first, then loading, then failed agents."""
    return report.failure is not None, not report.is_loaded


def adapted(report: Report) -> list[Report]:
    """Return the reports on the model itself and on the model with each of its adapters."""
    info = report.info
    plain = replace(info, adapters=())
    tasks = tuple(task for task in info.tasks if task in ("generate", *_SENSES))
    return [
        report,
        *(
            replace(report, info=replace(plain, name=adapted_name(info.name, each), tasks=tasks))
            for each in info.adapters
        ),
    ]


def unknown(name: str) -> ModelView:
    """Return the view of a model if only its name is known."""
    info = ModelInfo(
        name=name, architecture="", parameters=0, size_bytes=0, context_size=0, tasks=()
    )
    return ModelView(info=info, status="unloaded")


MAX_REMEMBERED = 1024
"""The maximum number of remembered models, because agents choose the names."""

_VERBS: dict[Task, str] = {
    "generate": "generate text",
    "embed": "embed texts",
    "rank": "rank documents",
    "vision": "read pictures: none of its agents has a projector (agent --projector, "
    "or `projector` in the desired state)",
    "audio": "hear sounds: none of its agents has a projector for them (agent --projector, "
    "or `projector` in the desired state)",
}

_MAX_NAMES = 10
_STATUSES = get_args(ModelStatus)


class ModelRegistry:
    """All known models, including models of agents that take no requests."""

    def __init__(self, *, memory: float) -> None:
        """Make an empty registry. `memory` is in seconds."""
        self._memory = memory
        self._reports: dict[LinkId, Report] = {}
        self._num_failing = 0
        """The number of reports with a failure."""
        self._models: dict[str, KnownModel] = {}
        self._forget_at: OrderedDict[str, float] = OrderedDict()
        self._views: tuple[ModelView, ...] | None = None
        self._room: PromptRoom | None = None
        self._any_abilities: dict[bool, frozenset[frozenset[Ability]]] = {}
        self._names: dict[Task | None, str] = {}
        self._desired: dict[str, ModelView] = {}
        self._aliases: dict[str, str] = {}
        self._removed: set[str] = set()
        """The models that are no longer desired but that agents still have."""
        self._left_out: Mapping[str, str] = {}
        self._failures: Mapping[str, LoadFailure] = {}
        self._restored: frozenset[str] = frozenset()
        self._restored_until: float | None = None

    def __len__(self) -> int:
        """The number of known models."""
        return len(self._models.keys() | self._desired.keys())

    @property
    def num_remembered(self) -> int:
        """The number of models that no agent has."""
        return len(self._forget_at)

    # ---- what operators desire

    def desire(self, names: Mapping[str, Iterable[str]], now: float) -> None:
        """Set the desired models. `names` has the aliases of each model."""
        removed = self._removed | (self._desired.keys() - names.keys())
        self._desired = {name: unknown(name) for name in names}
        self._aliases = {alias: name for name, aliases in names.items() for alias in aliases}
        for name in [name for name in self._forget_at if name in self._desired]:
            del self._forget_at[name]
        for name in [name for name in removed if name in self._models]:
            if self._is_unused(name, self._models[name]):
                self._forget_at.pop(name, None)
                del self._models[name]
        self._removed = {name for name in removed - names.keys() if name in self._models}
        for name, model in self._models.items():
            if self._is_unused(name, model) and name not in self._forget_at:
                self._forget_at[name] = now + self._memory
        self._forget_surplus()
        self._outdate_all()

    @property
    def aliases(self) -> Mapping[str, str]:
        """The model of each alias."""
        return self._aliases

    def resolve(self, name: str | None) -> str | None:
        """Return the model that `name` means, which may be an alias."""
        if name is None:
            return None
        base, colon, adapter = name.rpartition(":")
        if name not in self._aliases and base in self._aliases:
            return self._aliases[base] + colon + adapter
        return self._aliases.get(name, name)

    def base_of(self, name: str | None) -> str | None:
        """Return the name of the base model if `name` includes an adapter, or else `name`."""
        base, _, adapter = (name or "").rpartition(":")
        reports = self._models[base].reports if base in self._models else ()
        return base if any(adapter in each.info.adapters for each in reports) else name

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Set the models with adapters that agents cannot serve, with the reason for each name."""
        self._left_out = reasons

    def left_out(self, name: str) -> ModelNotFound | None:
        """Return the error for a model with an adapter that agents cannot serve, or `None`."""
        reason = self._left_out.get(name)
        if reason is None or (name in self._models and len(self._models[name].reports)):
            return None
        base, _, adapter = name.rpartition(":")
        message = f"the adapter `{adapter}` of the model `{base}` cannot be served: {reason}"
        return ModelNotFound(message, field="model")

    def fail(self, failures: Mapping[str, LoadFailure]) -> None:
        """Set the desired models that could not be loaded.

        The empty name means all models that could have been loaded.
        """
        self._failures = failures

    def failed(self, name: str | None, now: float) -> ModelFailed | None:
        """Return the error for a model that no agent can serve now or is loading, or `None`."""
        if not (self._failures or self._num_failing):
            return None
        shown = self.name_for(None) if name is None else name
        view = self.get(shown)
        if view is not None and view.status == "loaded":
            return None
        failure = self._failures.get(name or "")
        if failure is not None and now < failure.until:
            return _model_failed(name, failure.issue, failure.until - now)
        if view is None or view.status != "failed" or (name is None and self._desired):
            return None
        return _model_failed(name, view.issues[0], SERVER_PAUSE)

    def restored(self, names: Iterable[str], now: float) -> None:
        """Remember models that were served before the balancer's start.

        Their agents may not have connected yet.
        """
        self._restored = frozenset(islice(names, MAX_REMEMBERED if self._memory else 0))
        self._restored_until = now + self._memory if self._restored else None

    # ---- what agents report

    def agent_changed(
        self,
        link: LinkId,
        model: ModelInfo | None,
        loading: ModelInfo | None,
        now: float,
        *,
        abilities: frozenset[Ability],
        failure: Issue | None = None,
    ) -> None:
        """Record the report of an agent that serves `model` or loads `loading`.

        `abilities` decide which requests the agent gets. `failure` is given if the agent has the
        model but cannot serve it now.
        """
        info = model or loading
        new = None if info is None else Report(info, model is not None, abilities, failure)
        old = self._reports.get(link)
        if new == old:
            return
        self._num_failing += _is_failing(new) - _is_failing(old)
        if new is None:
            del self._reports[link]
        else:
            self._reports[link] = new
            self._add(new)
        if old is not None:
            self._remove(old, now)

    def agent_left(self, link: LinkId, now: float) -> None:
        """Remove an agent."""
        if (report := self._reports.pop(link, None)) is not None:
            self._num_failing -= _is_failing(report)
            self._remove(report, now)

    # ---- time

    def next_deadline(self) -> float | None:
        """Return the time at which the first model is to be forgotten, or `None`."""
        first = next(iter(self._forget_at.values()), None)
        return earliest(first, self._restored_until)

    def due(self, now: float) -> bool:
        """Forget the models whose time is over. Returns whether any model was forgotten."""
        has_forgotten = False
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            if deadline == self._restored_until:
                self.restored((), now)
            else:
                self._forget_oldest()
            has_forgotten = True
        return has_forgotten

    # ---- what clients ask

    def refusal(
        self, task: Task | None, name: str | None, *, field: str = "model"
    ) -> RequestError | None:
        """Return the error for a task that no known model can do, named in the field `field`.

        Returns `None` if a model can do the task or no agent is connected. Without a `task`, every
        model qualifies.
        """
        if name is None:
            return self._refusal_of_any(task, field)
        if (left_out := self.left_out(name)) is not None:
            return left_out
        model = self._models.get(name)
        if model is None:
            is_known = name in self._desired or name in self._restored
            has_any = bool(self._reports or self._desired)
            return None if is_known or not has_any else self._not_found(name)
        if task is None or task in model.facts.tasks:
            return None
        return _cannot(f"the model `{name[:200]}` cannot {_VERBS[task]}", field)

    def unable(self, request: GenerateRequest) -> NotSupported | None:
        """Return the error for a feature that no agent of the request's model supports, or `None`.

        The model must be able to generate.
        """
        sets = self._abilities(request.model, generating=True)
        if not sets or ABILITIES in sets:
            return None
        if request.messages is not None and not any("messages" in each for each in sets):
            return NotSupported(
                "the model has no chat template that works; send `prompt` instead",
                field="messages",
            )
        errors = [lacking(request, each, "no agent of the model can") for each in sets]
        return None if None in errors else errors[0]

    def can_tokenize(self, name: str | None, *, also: frozenset[Ability] = frozenset()) -> bool:
        """Return whether an agent of the model answers tokenizer queries; `None` means any model.

        The agent must also have the abilities `also`.
        """
        sets = self._abilities(name)
        return not sets or any(each >= TOKENIZER | also for each in sets)

    def _abilities(
        self, name: str | None, *, generating: bool = False
    ) -> frozenset[frozenset[Ability]]:
        """Return the different sets of abilities of a model's agents; `None` means any model.

        If `generating` is true, only agents that generate text count.
        """
        if name is not None:
            model = self._models.get(name)
            return frozenset() if model is None else _abilities_of(model, generating)
        if generating not in self._any_abilities:
            every = (_abilities_of(model, generating) for model in self._models.values())
            self._any_abilities[generating] = frozenset().union(*every)
        return self._any_abilities[generating]

    def too_long(self, request: GenerateRequest) -> PromptTooLong | None:
        """Return the error for a prompt that fits into no context of its model, or `None`."""
        return check_length(request, self.room(request.model))

    def room(self, name: str | None) -> PromptRoom:
        """Return the maximum prompt lengths for the model; `None` means any model."""
        if name is not None:
            model = self._models.get(name)
            return PromptRoom() if model is None else model.facts.room
        if self._room is None:
            models = (model.facts for model in self._models.values())
            self._room = largest(facts.room for facts in models if "generate" in facts.tasks)
        return self._room

    def get(self, name: str) -> ModelView | None:
        """Return the view of the model called `name`, or `None` if it is unknown."""
        model = self._models.get(name)
        return self._desired.get(name) if model is None else model.facts.view

    def views(self) -> tuple[ModelView, ...]:
        """Return the views of all known models, sorted by name."""
        if self._views is None:
            views = self._desired | {name: m.facts.view for name, m in self._models.items()}
            self._views = tuple(views[name] for name in sorted(views))
        return self._views

    def name_for(self, task: Task | None) -> str:
        """Return the model name for answers to requests without a model name.

        The name is the first in alphabetical order among loaded models that can do `task`, or else
        among loading models, or else among all models. It is empty if no model can do `task`.
        """
        if task not in self._names:
            able = [view for view in self.views() if self._can(view.info.name, task)]
            first = min(able, key=lambda view: _STATUSES.index(view.status), default=None)
            self._names[task] = "" if first is None else first.info.name
        return self._names[task]

    # ---- inside

    def _refusal_of_any(self, task: Task | None, field: str) -> InvalidRequest | None:
        if task is None or not (self._reports or self._desired) or self.name_for(task):
            return None
        return _cannot(f"no connected agent has a model that can {_VERBS[task]}", field)

    def _not_found(self, name: str) -> ModelNotFound:
        known = [view.info.name for view in islice(self.views(), _MAX_NAMES)]
        shown = ", ".join(known) + (", …" if len(self._models) > _MAX_NAMES else "")
        return ModelNotFound(
            f"no agent serves the model `{name[:200]}`; known models: {shown}", field="model"
        )

    def _can(self, name: str, task: Task | None) -> bool:
        model = self._models.get(name)
        return task is None or model is None or task in model.facts.tasks

    def _add(self, report: Report) -> None:
        for each in adapted(report):
            self._add_one(each)

    def _add_one(self, report: Report) -> None:
        model = self._models.setdefault(report.info.name, KnownModel(report))
        self._forget_at.pop(report.info.name, None)
        self._removed.discard(report.info.name)
        if report not in model.reports:
            self._outdate(model)
        model.last = report
        model.reports.add(report, 1)

    def _remove(self, report: Report, now: float) -> None:
        for each in adapted(report):
            self._remove_one(each, now)

    def _remove_one(self, report: Report, now: float) -> None:
        name = report.info.name
        model = self._models[name]
        model.reports.add(report, -1)
        if report in model.reports:
            return
        self._outdate(model)
        if self._is_unused(name, model) and name in self._removed:
            self._removed.discard(name)
            del self._models[name]
        elif self._is_unused(name, model):
            self._forget_at[name] = now + self._memory
            self._forget_surplus()

    def _forget_surplus(self) -> None:
        most = MAX_REMEMBERED if self._memory else 0
        while len(self._forget_at) > most:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        name, _ = self._forget_at.popitem(last=False)
        self._outdate(self._models.pop(name))

    def _is_unused(self, name: str, model: KnownModel) -> bool:
        return not len(model.reports) and name not in self._desired

    def _outdate(self, model: KnownModel) -> None:
        """Forget cached answers about `model`, and about all models."""
        model.cached = None
        self._outdate_all()

    def _outdate_all(self) -> None:
        self._views = self._room = None
        self._any_abilities.clear()
        self._names.clear()

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        if self.num_remembered > MAX_REMEMBERED:
            raise RuntimeError("too many models are remembered")
        unused = {name for name, model in self._models.items() if not len(model.reports)}
        if unused - self._desired.keys() != set(self._forget_at):
            raise RuntimeError("models that no agent has are not those that are remembered")
        reports = [each for report in self._reports.values() for each in adapted(report)]
        reported = {report.info.name for report in reports}
        if reported != set(self._models) - unused:
            raise RuntimeError("models and reports disagree")
        if self._num_failing != sum(map(_is_failing, self._reports.values())):
            raise RuntimeError("failures are miscounted")


def _is_failing(report: Report | None) -> bool:
    return report is not None and report.failure is not None


def _model_failed(name: str | None, issue: Issue, retry_after: float) -> ModelFailed:
    what = "no model" if name is None else f"the model `{name[:200]}`"
    can = "can" if name is None else "cannot"
    hint = f"; {issue.hint}" if issue.hint else ""
    message = f"{what} {can} be served now: {issue.message}{hint}"
    return ModelFailed(message, retry_after=retry_after)


def _abilities_of(model: KnownModel, generating: bool) -> frozenset[frozenset[Ability]]:
    return model.facts.generating if generating else model.facts.abilities


def _cannot(message: str, field: str) -> InvalidRequest:
    return InvalidRequest(message if field == "model" else f"`{field}`: {message}", field=field)
