"""The model that an engine process has loaded, for balancers: name, slots, issues.

An assignment says how the model is served. A new assignment may change everything but the model.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ..shared.lifecycle import StartupError
from ..shared.messages import Issue
from ..shared.models.assignments import Assignment, MemoryPart
from ..shared.reports.model_info import ModelInfo
from ..shared.sampling import SamplingChoices
from .adapter_table import AdapterFile, AdapterTable
from .chat.templates.chat_template import TemplateError
from .chat.templates.chat_templates import TemplateSource, given_template
from .engine.loaded_model import LoadedModel
from .engine.prompt_store.cache_folder import CacheFolder
from .engine.prompt_store.prompt_store import PromptStore
from .engine.prompt_store.stored_prompt import ModelIdentity, Origin
from .generation.preparer import Preparer
from .gguf.split_files import files_of
from .model_identity import files_digest, fingerprint, identity_of, origin_of
from .settings import AgentSettings

logger = logging.getLogger(__name__)


class AdapterUnusableError(StartupError):
    """The file of the adapter `name` cannot be read, or does not fit this model."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"adapter `{name}`: {reason}")
        self.name = name
        self.reason = reason


class ServedModel:
    """A loaded model, its preparer, and the store of its prompts."""

    def __init__(
        self,
        settings: AgentSettings,
        model: LoadedModel,
        assignment: Assignment | None,
        adapters: Sequence[AdapterFile] = (),
    ) -> None:
        """Read the model's files. Raises `StartupError`. The `adapters` are loaded already."""
        self._settings = settings
        self._options = model.options or settings.load_options
        self._assignment = assignment
        self.model = model
        self.cache_folder = _open_folder(settings)
        self._identity = _identity(settings, model)
        self.store = self._open_store()
        self.preparer = self.make_preparer(assignment, adapters)

    def make_preparer(
        self, assignment: Assignment | None, adapters: Sequence[AdapterFile] = ()
    ) -> Preparer:
        """Return a preparer for requests under `assignment`. Slow. Raises `StartupError`."""
        try:
            preparer = Preparer(
                self.model,
                self._options.slot_tokens,
                template=_template(self._settings, assignment),
                family=self._settings.chat_family,
                store=self.store,
                defaults=assignment.sampling if assignment else SamplingChoices(),
                grammar_timeout=self._settings.grammar_timeout,
                adapters=AdapterTable(
                    assignment.name if assignment else self.model.info.name, adapters
                ),
            )
        except TemplateError as error:
            raise StartupError(str(error)) from error
        if self._generates and preparer.template_issue is not None:
            logger.warning("conversations cannot be served: %s", preparer.template_issue)
        return preparer

    def use(self, assignment: Assignment, preparer: Preparer) -> None:
        """Serve `assignment` from now on, with the preparer that `make_preparer` made for it."""
        self._assignment = assignment
        self.preparer = preparer

    @property
    def origin(self) -> Origin | None:
        """The origin of the model's cells, which identifies them; `None` if unknown."""
        if self._identity is None:
            return None
        return origin_of(self._identity, self._options, self.model.arithmetic)

    @property
    def num_slots(self) -> int:
        """The number of assigned slots; 0 for a model that only embeds."""
        assigned = self._assignment and self._assignment.slots
        return (assigned or self._settings.slots) if self._generates else 0

    @property
    def named_info(self) -> ModelInfo:
        """The model under its assigned name."""
        info = self.model.info
        return info if self._assignment is None else replace(info, name=self._assignment.name)

    @property
    def info(self) -> ModelInfo:
        """The model with its fingerprint, its adapters and the options with which it is loaded."""
        return replace(
            self.named_info,
            fingerprint=self._fingerprint,
            adapters=self.preparer.adapters.names,
            chats=self.preparer.template_issue is None or not self._generates,
            engine=self._options.view,
            fit=self.model.fit,
            memory=tuple(
                MemoryPart(device=name, bytes=size) for name, size in self.model.held.items()
            ),
        )

    @property
    def issues(self) -> tuple[Issue, ...]:
        """The issues of the model as it is served now."""
        issue = self.preparer.template_issue
        if issue is None or not self._generates:
            return ()
        return (Issue(code="chat_template", message=issue),)

    @property
    def _fingerprint(self) -> str | None:
        if self._identity is None or not self._generates:
            return None
        return fingerprint(
            self._identity,
            self._options,
            self.model.vocab,
            self.preparer.traits,
            self.model.arithmetic,
        )

    def _open_store(self) -> PromptStore | None:
        if self.cache_folder is None or self.origin is None:
            return None
        return PromptStore(self.cache_folder, origin=self.origin)

    @property
    def _generates(self) -> bool:
        return "generate" in self.model.info.tasks


def _identity(settings: AgentSettings, model: LoadedModel) -> ModelIdentity | None:
    """Return the identity of the model's files; `None` if they can no longer be read.

    Raises `StartupError` if prompts are to be stored for a model without an identity.
    """
    if settings.model is None:
        return None
    try:
        return identity_of(model.info, model_files(settings.model))
    except OSError as error:
        if settings.cache_dir is not None:
            raise StartupError(
                f"--cache-dir {settings.cache_dir} cannot be used: {error}"
            ) from error
        logger.warning("answers cannot be continued by or from other agents: %s", error)
        return None


def model_files(path: Path) -> list[Path]:
    """Return all files of the model at `path`, the first file first."""
    try:
        parts = [path.with_name(name) for name in files_of(path.name)]
    except ValueError:
        return [path]  # the name alone looks like one of several
    return [path, *(part for part in parts if part != path and part.exists())]


def adapters_with_digests(adapters: Iterable[AdapterFile]) -> tuple[AdapterFile, ...]:
    """Return the adapters with the digests of their files.

    Raises `AdapterUnusableError`.
    """
    return tuple(map(_with_digest, adapters))


def _with_digest(one: AdapterFile) -> AdapterFile:
    try:
        return replace(one, digest=files_digest([one.path]))
    except OSError as error:
        reason = f"{error.filename} cannot be read: {error.strerror}"
        raise AdapterUnusableError(one.name, reason) from error


def _open_folder(settings: AgentSettings) -> CacheFolder | None:
    if settings.cache_dir is None:
        return None
    try:
        return CacheFolder(settings.cache_dir, limit_bytes=settings.cache_limit)
    except OSError as error:
        raise StartupError(f"--cache-dir {settings.cache_dir} cannot be used: {error}") from error


def _template(settings: AgentSettings, assignment: Assignment | None) -> TemplateSource | None:
    if assignment is not None and assignment.chat_template is not None:
        return TemplateSource(assignment.chat_template, "the assigned chat template")
    return given_template(settings.chat_template) if settings.chat_template else None
