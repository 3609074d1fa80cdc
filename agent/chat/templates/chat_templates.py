"""The chat templates of one model: general template and tool template, or the operator's."""

from dataclasses import dataclass
from pathlib import Path
from time import thread_time

from ....shared.errors import NotSupported
from ....shared.inference import Notice
from ...engine.loaded_model import LoadedModel
from ..families.call_syntax import JSON_CALLS
from ..families.families import family_named, family_of
from .chat_template import ChatTemplate, TemplateError
from .sandbox import Clock
from .user_text import ControlTexts

_FLAG = "--chat-template"
_MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TemplateSource:
    """Jinja source, and the name for it in errors."""

    text: str
    origin: str = "the model's chat template"


def given_template(value: str) -> TemplateSource:
    """Return the operator's template: source with braces or new lines, or a file's path.

    Raises `TemplateError`.
    """
    if "{" in value or "\n" in value:
        return TemplateSource(value, f"the template in {_FLAG}")
    try:
        with Path(value).open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise TemplateError(f"{_FLAG} {value}: more than {_MAX_BYTES} bytes, so no template")
        return TemplateSource(content.decode(), f"the chat template {value}")
    except OSError as error:
        raise TemplateError(f"{_FLAG} {value}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TemplateError(f"{_FLAG} {value}: not UTF-8 text") from error


class ChatTemplates:
    """Chooses the template for a conversation. Immutable, so threads may share it."""

    def __init__(
        self,
        model: LoadedModel,
        given: TemplateSource | None,
        *,
        clock: Clock,
        family: str = "auto",
    ) -> None:
        """Compile the templates. Raises `TemplateError` if the `given` template does not compile.

        `family` names the model's family; `auto` recognises the family by its templates.
        """
        self._model = model
        self._clock = clock
        self._control = ControlTexts(model.vocab.control_texts)
        self._general: ChatTemplate | None = None
        self._for_tools: ChatTemplate | None = None
        self.issue: str | None = None
        """Why conversations cannot be served; `None` if they can."""
        self.general_text = model.chat_template if given is None else given.text
        """The source of the template for conversations without tools, if there is one."""
        self.text = (model.chat_template or "") + (model.tool_template or "")
        """The source of all templates."""
        if given is not None:
            self.text = given.text
        self.family = family_of(self.text) if family == "auto" else family_named(family)
        """The model's family."""
        if given is not None:
            self._general = self._for_tools = self._compiled(given)
            return
        try:
            self._general = self._own(model.chat_template)
            self._for_tools = self._own(model.tool_template) or self._general
        except TemplateError as error:
            self.issue = str(error)
        if not self.text:
            self.issue = "the model has no chat template; send `prompt` instead"

    def for_request(self, *, has_tools: bool) -> ChatTemplate:
        """Return the template for conversations with or without tools. Raises `NotSupported`."""
        template = self._for_tools if has_tools else self._general
        if template is None:
            issue = self.issue or "the model has a chat template for tools only; give `tools`"
            raise NotSupported(f"`messages`: {issue}", field="messages")
        return template

    @property
    def tools_notice(self) -> Notice | None:
        """The notice for clients that send tools; `None` if the template shows the tools."""
        template = self._for_tools
        if template is None or not template.ignores_tools:
            return None
        return Notice(
            "tools_described",
            f"`tools`: {template.origin} does not show them, so an instruction describes them; "
            f"a model whose template shows tools calls them better, and so may {_FLAG}",
        )

    def _own(self, text: str | None) -> ChatTemplate | None:
        return None if text is None else self._compiled(TemplateSource(text))

    def _compiled(self, source: TemplateSource) -> ChatTemplate:
        return ChatTemplate(
            source.text,
            origin=source.origin,
            bos_text=self._model.vocab.bos_text,
            eos_text=self._model.vocab.eos_text,
            clock=self._clock,
            timer=thread_time,
            control=self._control,
            calls=self.family.told(self.text).syntax(self.text) or JSON_CALLS,
        )
