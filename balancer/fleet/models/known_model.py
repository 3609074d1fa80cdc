"""What agents report of the models of one name, and what follows from it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ....shared.inference.abilities import Ability
from ....shared.inference.adapters import adapted_name
from ....shared.reports.model_info import ModelInfo, Task
from ..tally import Tally
from ..view import ModelStatus, ModelView
from .prompt_room import PromptRoom, room_of

_SENSES: tuple[Task, ...] = ("vision", "audio")


@dataclass(frozen=True, slots=True)
class Report:
    """What an agent says of its model, and what requests may need of that agent."""

    info: ModelInfo
    is_loaded: bool
    abilities: frozenset[Ability]


@dataclass(frozen=True, slots=True)
class Facts:
    """What follows from the reports on one model.

    `abilities` are those of each agent, `generating` of each that generates text with it.
    """

    view: ModelView
    tasks: frozenset[Task]
    room: PromptRoom
    abilities: frozenset[frozenset[Ability]]
    generating: frozenset[frozenset[Ability]]


def _shown(infos: Sequence[ModelInfo], tasks: frozenset[Task]) -> ModelInfo:
    """What is told of a model: what its first agent says, and which media any agent takes."""
    first = infos[0]
    more = tuple(task for task in _SENSES if task in tasks and task not in first.tasks)
    return replace(first, tasks=(*first.tasks, *more)) if more else first


@dataclass(slots=True)
class KnownModel:
    """Every model of one name. Agents may differ in what they report of it."""

    last: Report
    reports: Tally[Report] = field(default_factory=Tally)
    cached: Facts | None = None

    @property
    def facts(self) -> Facts:
        if self.cached is None:
            self.cached = self._facts()
        return self.cached

    def _facts(self) -> Facts:
        reports = sorted(self.reports, key=lambda report: not report.is_loaded) or [self.last]
        infos = [report.info for report in reports]
        status: ModelStatus = "loaded" if reports[0].is_loaded else "loading"
        tasks = frozenset(task for info in infos for task in info.tasks)
        shown = _shown(infos, tasks)
        return Facts(
            ModelView(info=shown, status=status if len(self.reports) else "unloaded"),
            tasks,
            room_of(infos),
            frozenset(report.abilities for report in reports),
            frozenset(each.abilities for each in reports if "generate" in each.info.tasks),
        )


def adapted(report: Report) -> list[Report]:
    """What it says of the model, and of the model under each of its adapters, which generates."""
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
    """A model of which nothing is known but its name."""
    info = ModelInfo(
        name=name, architecture="", parameters=0, size_bytes=0, context_size=0, tasks=()
    )
    return ModelView(info=info, status="unloaded")
