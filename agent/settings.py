"""The settings of an agent."""

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ..shared.inference.adapters import MAX_ADAPTERS, MAX_SCALE
from ..shared.labels import MAX_LABELS
from ..shared.models.assignments import MAX_MODEL_NAME
from ..shared.quantities import Duration, Size
from ..shared.settings.declaration import DaemonSettings, ListenAddress, Shown
from ..shared.tls.contexts import ClientFiles
from ..shared.tls.key_pair import KeyPair
from .adapter_table import AdapterFile
from .chat.families.families import FAMILY_NAMES
from .engine.load_options import LoadOptions

_ADAPTER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", re.ASCII)
_SCALE = re.compile(r"-?\d+(\.\d+)?", re.ASCII)

_LABEL = re.compile(r"[\w./-]{1,63}=[\w./-]{0,63}", re.ASCII)


def _url(*schemes: str, example: str, hint: str = "") -> Callable[[str], str]:
    """Return a check that a value is a URL with the scheme of `example`.

    `hint` says where credentials belong.
    """

    def check(url: str) -> str:
        problem = f"must be a {example}"
        try:
            parts = urlsplit(url)
            has_port = parts.port != 0
        except ValueError as error:
            raise ValueError(problem) from error
        if parts.scheme not in schemes or not parts.hostname or not has_port:
            raise ValueError(problem)
        if parts.query or parts.fragment or "@" in parts.netloc:
            raise ValueError(f"{problem}, without credentials, query or fragment{hint}")
        return url.rstrip("/")

    return check


_websocket_url = _url("ws", "wss", example="WebSocket URL such as ws://127.0.0.1:8060")
_http_url = _url(
    *("http", "https"),
    example="URL such as http://127.0.0.1:8000",
    hint="; a key goes into a file (--upstream-key-file)",
)


def _distinct(urls: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(urls)) < len(urls):
        raise ValueError("must name each balancer once")
    return urls


def _file(text: object) -> object:
    """Check that the value is a file. For an address, the error says how to serve an address."""
    if isinstance(text, str) and "://" in text:
        raise ValueError(
            "must be a GGUF file on this host (to serve a model from an address, start the agent "
            "without --model and run `arriero models add ADDRESS`)"
        )
    return text


def _known_family(name: str) -> str:
    if name not in ("auto", *FAMILY_NAMES):
        raise ValueError(f"must be auto or one of {', '.join(FAMILY_NAMES)}")
    return name


def _models_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "arriero" / "models"


def _label(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError("must be KEY=VALUE, both of letters, digits and -_./ (at most 63)")
    return text


def _one_a_key(labels: tuple[str, ...]) -> tuple[str, ...]:
    keys = [label.partition("=")[0] for label in labels]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise ValueError(f"must name each key once, and names {twice} twice")
    return labels


def _adapter(text: str) -> str:
    adapter_file(text)
    return text


def adapter_file(text: str) -> AdapterFile:
    """Parse NAME=FILE[:SCALE]. Raises `ValueError`."""
    name, _, rest = text.partition("=")
    path, _, scale = rest.rpartition(":")
    if not path or not _SCALE.fullmatch(scale):
        path, scale = rest, "1"
    if not _ADAPTER.fullmatch(name) or not path:
        raise ValueError(
            "must be NAME=FILE or NAME=FILE:SCALE, with a name of letters, digits and -_."
        )
    if abs(float(scale)) > MAX_SCALE:
        raise ValueError(f"must have a scale from {-MAX_SCALE} to {MAX_SCALE}")
    return AdapterFile(name, Path(path), float(scale))


def _one_a_name(adapters: tuple[str, ...]) -> tuple[str, ...]:
    names = [adapter.partition("=")[0] for adapter in adapters]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"must name each adapter once, and names {twice} twice")
    return adapters


Label = Annotated[str, AfterValidator(_label)]
BalancerUrl = Annotated[str, AfterValidator(_websocket_url)]


class AgentSettings(LoadOptions, DaemonSettings):
    """An agent's settings, including those of its engine. Times are in seconds."""

    program: ClassVar[str] = "agent"
    secrets: ClassVar[tuple[str, ...]] = ("ARRIERO_AGENT_KEY",)
    summary: ClassVar[str] = (
        "Serves a model on this host: dials balancers, and decodes their requests in one "
        "continuous batch."
    )

    balancer: Annotated[
        tuple[BalancerUrl, ...], Field(min_length=1), AfterValidator(_distinct), Shown("URL")
    ] = Field(
        default=("ws://127.0.0.1:8060",),
        description="management address of a balancer; if its name has several addresses, each is "
        "dialled; in the environment, separate several by commas",
    )
    tls_ca: Annotated[Path | None, Shown("FILE", "the system's")] = Field(
        default=None,
        description="certificates of the authority that signed the balancer's certificate, in PEM "
        "form, for wss:// balancers",
    )
    tls_cert: Annotated[Path | None, Shown("FILE")] = Field(
        default=None,
        description="certificate to show to balancers that ask for one (their --agent-ca), in PEM "
        "form",
    )
    tls_key: Annotated[Path | None, Shown("FILE")] = Field(
        default=None, description="private key of the certificate, in PEM form and not encrypted"
    )
    key_file: Annotated[Path | None, Shown("FILE", "ARRIERO_AGENT_KEY")] = Field(
        default=None,
        description="file with the access key (of the role agent) to show to balancers; it is "
        "read for each dial. Without the file, the variable ARRIERO_AGENT_KEY may "
        "contain the key itself",
    )
    peer_addr: Annotated[ListenAddress | None, Shown("HOST:PORT", "none")] = Field(
        default=None,
        description="address at which other agents fetch computed prefixes from this one; it "
        "fetches theirs, too. With --tls-cert the connections use TLS: the "
        "certificate must name this address, and other agents check it with their "
        "--tls-ca",
    )
    insecure: bool = Field(
        default=False,
        description=(
            "allow a --peer-addr that other hosts reach without TLS; use it only if something "
            "else protects the network"
        ),
    )
    name: Annotated[str, Field(min_length=1, max_length=200), Shown("TEXT", "host name")] = Field(
        default_factory=socket.gethostname, description="name of this agent, shown to people"
    )
    label: Annotated[
        tuple[Label, ...],
        Field(max_length=MAX_LABELS),
        AfterValidator(_one_a_key),
        Shown("KEY=VALUE"),
    ] = Field(
        default=(),
        description="a label by which the fleet's desired state chooses agents, such as gpu=yes; "
        "in the environment, several are separated by commas",
    )
    model: Annotated[Path | None, BeforeValidator(_file), Shown("FILE")] = Field(
        default=None,
        description="GGUF file to serve; without it the fleet's desired state decides",
    )
    upstream: Annotated[Annotated[str, AfterValidator(_http_url)] | None, Shown("URL")] = Field(
        default=None,
        description="OpenAI-compatible server to forward to, instead of running an engine: vLLM, "
        "llama-server, Ollama, a cloud",
    )
    upstream_key_file: Annotated[Path | None, Shown("FILE")] = Field(
        default=None,
        description="file with the key for the upstream server; it is read again while the agent "
        "runs",
    )
    upstream_model: Annotated[
        Annotated[str, Field(min_length=1, max_length=MAX_MODEL_NAME)] | None, Shown("NAME")
    ] = Field(
        default=None,
        description=(
            "model of the upstream server to serve; required if the server has several models"
        ),
    )
    upstream_name: Annotated[
        Annotated[str, Field(min_length=1, max_length=MAX_MODEL_NAME)] | None,
        Shown("NAME", "the model's name on the server"),
    ] = Field(
        default=None,
        description=(
            "name by which clients call the model. By default it is the model's name on the "
            "upstream server; if that name is a path, its last part"
        ),
    )
    adapter: Annotated[
        tuple[Annotated[str, AfterValidator(_adapter)], ...],
        Field(max_length=MAX_ADAPTERS),
        AfterValidator(_one_a_name),
        Shown("NAME=FILE[:SCALE]"),
    ] = Field(
        default=(),
        description="an adapter (LoRA, GGUF) to serve with the model; clients ask for it as "
        "MODEL:NAME; in the environment, several are separated by commas",
    )
    chat_template: Annotated[
        Annotated[str, Field(min_length=1)] | None, Shown("FILE|JINJA", "the model's own")
    ] = Field(
        default=None,
        description="chat template to use instead of the model's: a file, or the text itself",
    )
    chat_family: Annotated[str, AfterValidator(_known_family), Shown("FAMILY")] = Field(
        default="auto",
        description="model family whose markers separate reasoning and tool calls from content: "
        f"{', '.join(FAMILY_NAMES)}; auto recognises it by the model's chat template",
    )
    step_timeout: Annotated[Duration, Field(gt=0), Shown("DURATION")] = Field(
        default=300.0,
        description=(
            "maximum time of an engine step; after this time the engine process is restarted, "
            "because a GPU or its driver hangs. After a tenth of this time the agent accepts "
            "nothing new and reports the issue engine_stalled. Steps usually take at most two "
            "seconds, but a picture that is computed as a whole takes longer; loading does not "
            "count"
        ),
    )
    grammar_timeout: Annotated[Duration, Field(gt=0, le=60), Shown("DURATION")] = Field(
        default=2.0,
        description="maximum CPU time to compile the constraint of a request: a JSON Schema, a "
        "grammar, a regular expression or a forced tool call. A request that needs more is "
        "refused (invalid_request)",
    )
    cache_dir: Annotated[Path | None, Shown("DIR")] = Field(
        default=None,
        description="folder for prefixes of prompts and answers, which later requests continue "
        "from after memory has evicted them or the agent has restarted, and for "
        "prompts that requests save (`cache_key`); several agents may share it",
    )
    cache_limit: Annotated[Size, Field(gt=0), Shown("SIZE", "10GiB")] = Field(
        default=10 * 2**30, description="maximum size of all files in the cache folder"
    )
    cache_scope: Annotated[Literal["shared", "key"], Shown("shared|key")] = Field(
        default="shared",
        description=(
            "which callers share computed prefixes, in memory and on disk: shared for all "
            "callers, key for callers with the same access key. With key, callers without a "
            "key share with each other"
        ),
    )
    models_dir: Annotated[Path, Shown("DIR", "~/.cache/arriero/models")] = Field(
        default_factory=_models_dir,
        description="folder for downloaded model files; agents of a host may share it",
    )
    models_limit: Annotated[Annotated[Size, Field(gt=0)] | None, Shown("SIZE", "none")] = Field(
        default=None,
        description="maximum size of all files in the models folder; the least recently used "
        "files that no agent of the host uses are evicted for new ones; without a "
        "limit nothing is evicted",
    )
    models_max: Annotated[int, Shown("N"), Field(ge=1, le=64)] = Field(
        default=4,
        description="maximum models served at once, as far as memory holds them; with --model or "
        "--upstream there is one",
    )

    @model_validator(mode="after")
    def _tls_is_whole(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "cert" if self.tls_cert is None else "key"
            raise ValueError(f"--tls-{missing}: is missing; --tls-cert and --tls-key go together")
        plain = [url for url in self.balancer if url.startswith("ws:")]
        if plain and (self.tls_ca or self.tls_cert):
            raise ValueError(f"--balancer: must be wss:// if TLS is set up, not {plain[0]}")
        return self

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.upstream is None:
            for name in ("upstream_model", "upstream_name", "upstream_key_file"):
                if getattr(self, name) is not None:
                    flag = "--" + name.replace("_", "-")
                    raise ValueError(f"{flag}: needs --upstream, which says where the server is")
        elif self.model is not None:
            raise ValueError("--model: cannot be used with --upstream: the server has the model")
        elif self.deterministic:
            raise ValueError("--deterministic: cannot be used with --upstream: the server computes")
        return self

    @model_validator(mode="after")
    def _peers_are_safe(self) -> Self:
        address = self.peer_addr
        if address is None:
            return self
        if self.upstream is not None:
            raise ValueError("--peer-addr: cannot be used with --upstream, which has no prefixes")
        if address.is_unspecified:
            raise ValueError(
                f"--peer-addr: other agents cannot dial {address}; name an address of this host"
            )
        if not (address.is_loopback or self.tls_cert or self.insecure):
            raise ValueError(
                f"--peer-addr: other hosts reach {address}, and prompts can be read on the way; "
                "give a certificate (--tls-cert, --tls-key), or --insecure if something else "
                "protects it"
            )
        return self

    @property
    def is_pinned(self) -> bool:
        """Return whether the agent serves a model of its own, whatever balancers assign."""
        return self.model is not None or self.upstream is not None

    @property
    def load_options(self) -> LoadOptions:
        """The options with which the engine is loaded."""
        return LoadOptions.model_validate(
            {name: getattr(self, name) for name in LoadOptions.model_fields}
        )

    @property
    def tls(self) -> ClientFiles:
        """The files for TLS: trusted authorities, and the certificate to show."""
        if self.tls_cert is None or self.tls_key is None:
            return ClientFiles(self.tls_ca)
        return ClientFiles(self.tls_ca, KeyPair(self.tls_cert, self.tls_key))

    @property
    def adapters(self) -> tuple[AdapterFile, ...]:
        """The adapters, without their digests."""
        return tuple(map(adapter_file, self.adapter))

    @property
    def labels(self) -> dict[str, str]:
        """The labels by key."""
        return dict(label.split("=", 1) for label in self.label)
