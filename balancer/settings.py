"""The settings of a balancer."""

import socket
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Field, GetPydanticSchema, model_validator
from pydantic_core.core_schema import literal_schema

from ..shared.models.sources import MAX_HTTP_HOSTS, http_host
from ..shared.quantities import Address, Duration, Size, format_duration
from ..shared.settings.declaration import DaemonSettings, ListenAddress, Shown
from .access.identity import NAMES, NO_LIMITS, CallerLimits, parse_limits
from .api.conversation_store import DEFAULT_AGE, DEFAULT_BYTES
from .api.transport.defaults import (
    EARLY_HEADERS,
    HEADER_TIMEOUT,
    MAX_CONNECTIONS,
    WRITE_TIMEOUT,
)
from .api.transport.hosts import checked_host, checked_origin, checked_url
from .fleet.limits import Limits
from .fleet.routing.policies import POLICIES
from .jobs.files_place import FileLimits, FilesPlace, parse_place
from .store.url import StoreUrl, parse_store_url

_LIMITS = Limits()
_FILES = FileLimits()

Timeout = Annotated[Duration, Field(gt=0), Shown("DURATION")]
RoutingName = Annotated[
    str,
    GetPydanticSchema(lambda *_: literal_schema([*POLICIES])),
    Shown("|".join(POLICIES)),
]


class BalancerSettings(DaemonSettings):
    """A balancer's settings. Times in seconds."""

    program: ClassVar[str] = "balancer"
    summary: ClassVar[str] = (
        "Takes inference requests, holds them until an agent has a free slot, and forwards the "
        "answers as they are made."
    )

    inference_addr: ListenAddress = Field(
        default=Address("127.0.0.1", 8061),
        description="where clients connect: native API, WebSocket, and OpenAI under /v1",
    )
    management_addr: ListenAddress = Field(
        default=Address("127.0.0.1", 8060),
        description="where agents and operators connect: agents' socket, REST and events, "
        "/metrics, dashboard at /",
    )
    tls_cert: Annotated[Path | None, Shown("FILE")] = Field(
        default=None,
        description="certificate of both ports, in PEM form with the chain below it; loaded again "
        "when it changes. With it both ports speak TLS only",
    )
    tls_key: Annotated[Path | None, Shown("FILE")] = Field(
        default=None, description="private key of the certificate, in PEM form and not encrypted"
    )
    agent_ca: Annotated[Path | None, Shown("FILE")] = Field(
        default=None,
        description="certificates that sign agents': an agent then has to show one "
        "(--tls-cert of the agent) to join",
    )
    insecure: bool = Field(
        default=False,
        description="listen where other hosts reach the ports, also without TLS and keys: for "
        "networks where something else protects them",
    )
    without_keys: bool = Field(
        default=False,
        description="serve everybody although --state had access keys and has none now; without "
        "this a balancer whose keys are gone lets nobody in. Give it once: the store then counts "
        "as one that never had keys",
    )
    allowed_host: Annotated[
        tuple[Annotated[str, AfterValidator(checked_host)], ...], Shown("NAME", "none")
    ] = Field(
        default=(),
        description="a name by which people or agents call this balancer, with or without a port; "
        "may be repeated. Addresses, localhost and the names it listens on need not be given",
    )
    allowed_origin: Annotated[
        tuple[Annotated[str, AfterValidator(checked_origin)], ...], Shown("ORIGIN", "none")
    ] = Field(
        default=(),
        description="an origin whose pages may call models from a browser (CORS), such as "
        "https://chat.example; may be repeated. http://localhost:* stands for any port, app://* "
        "for all of a scheme, * for any page that a user of this host opens: then use keys",
    )
    public_url: Annotated[str | None, AfterValidator(checked_url), Shown("URL")] = Field(
        default=None,
        description="where clients reach the inference port, behind a proxy: commands of the "
        "dashboard name it; without it, the dashboard's host and the inference port",
    )
    header_timeout: Timeout = Field(
        default=HEADER_TIMEOUT, description="longest wait for the header of a request"
    )
    write_timeout: Timeout = Field(
        default=WRITE_TIMEOUT,
        description="how long a client may read nothing of its answer before its connection is cut",
    )
    metrics_for_clients: bool = Field(
        default=False,
        description="serve /metrics where clients connect, too; it names agents and models",
    )
    max_connections: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=MAX_CONNECTIONS, description="most connections to each of the two ports"
    )
    state: Annotated[StoreUrl, BeforeValidator(parse_store_url), Shown("URL")] = Field(
        default=StoreUrl("memory"),
        description="where desired state and history are kept: memory:// loses them at the end, "
        "sqlite:///FILE (in the current folder, unless FILE is an absolute path), "
        "postgresql://USER@HOST/DATABASE",
    )
    balancer_name: Annotated[
        str, Field(min_length=1, max_length=200), Shown("NAME", "host name")
    ] = Field(
        default_factory=socket.gethostname,
        description="name of this balancer among those that share its --state, shown to people",
    )
    workers: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1,
        description="processes that share both ports and the work, each with a queue and limits of "
        "its own; more than one need a --state that they share: sqlite:// or postgresql://",
    )
    files: Annotated[
        FilesPlace | None, BeforeValidator(parse_place), Shown("FOLDER|URL", "beside --state")
    ] = Field(
        default=None,
        description="where the files of /v1/files and of batches are kept: a folder, or a URL "
        "that fsspec knows, such as s3://BUCKET/FOLDER. By default beside an SQLite file; with "
        "memory:// in a temporary folder that is deleted at the end; with postgresql:// nowhere",
    )
    max_file_size: Annotated[Size, Shown("SIZE", "1GiB")] = Field(
        default=_FILES.max_file, description="largest file that may be uploaded"
    )
    files_limit: Annotated[Size, Shown("SIZE", "64GiB")] = Field(
        default=_FILES.max_total,
        description="uploads are refused while all files together would be larger, or those of "
        "one key larger than what they leave free",
    )
    batches_outlive_keys: bool = Field(
        default=False,
        description="let a batch run to its end if its access key is revoked, replaced or expires; "
        "by default such a batch is cancelled",
    )
    admin_key_file: Annotated[Path | None, Shown("FILE")] = Field(
        default=None,
        description="a file with an access key of the role admin, beside those that --state keeps; "
        "with any key, every call needs one",
    )
    max_buffered_requests: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=_LIMITS.max_buffered_requests,
        description="how many requests may wait for a slot; 0 turns queueing off",
    )
    request_memory: Annotated[Size, Field(ge=64 * 2**20), Shown("SIZE", "512MiB")] = Field(
        default=_LIMITS.request_memory,
        description="most memory of each worker for requests that wait or run; half as much again "
        "for bodies that are being read, and a quarter for answers that are not streamed. Callers "
        "share it fairly, one alone may have half. Raise it if many long prompts wait at once",
    )
    routing: RoutingName = Field(
        default=_LIMITS.routing,
        description="how agents are chosen for requests: "
        + "; ".join(f"{name}, by {policy.summary}" for name, policy in POLICIES.items()),
    )
    buffered_request_timeout: Timeout = Field(
        default=_LIMITS.buffered_request_timeout, description="longest wait for a slot"
    )
    early_headers: Annotated[Duration, Field(ge=0), Shown("DURATION")] = Field(
        default=EARLY_HEADERS,
        description="how long a request may still be refused with a status of its own while it "
        "waits for a slot, a model or the end of its prompt: after that its stream begins with "
        "200 and says what it waits for, so that proxies do not cut it, and an error is an event; "
        "keep it below what proxies allow",
    )
    first_token_timeout: Timeout = Field(
        default=_LIMITS.first_token_timeout,
        description="longest wait between a slot and the first token, or the agent's last report "
        "that it reads the prompt",
    )
    token_timeout: Timeout = Field(
        default=_LIMITS.token_timeout,
        ge=0.2,
        description="longest silence between tokens; 200ms at least, since agents tell those of "
        "answers that are not streamed ten times a second",
    )
    request_timeout: Timeout = Field(
        default=_LIMITS.request_timeout, description="longest time a request may take as a whole"
    )
    key_limits: Annotated[CallerLimits, BeforeValidator(parse_limits), Shown("LIMITS", "none")] = (
        Field(
            default=NO_LIMITS,
            description="limits of each access key that has none of its own, such as "
            "requests-per-minute=60,tokens-per-minute=100000. There are " + ", ".join(NAMES),
        )
    )
    anonymous_limits: Annotated[
        CallerLimits, BeforeValidator(parse_limits), Shown("LIMITS", "none")
    ] = Field(
        default=NO_LIMITS,
        description="likewise, for each address of callers without an access key",
    )
    responses_limit: Annotated[Size, Shown("SIZE", "64MiB")] = Field(
        default=DEFAULT_BYTES,
        description="most memory for answers kept for /v1/responses and threads of "
        "/v1/messages, and most bytes of them in a store that balancers share; 0 keeps none. As "
        "much again for requests with an Idempotency-Key or in the "
        "background, and in the store (--state) for these. Keys share it fairly: raise it where "
        "responses in the background are refused",
    )
    responses_max_age: Timeout = Field(
        default=DEFAULT_AGE, description="how long an unused answer or thread is kept"
    )
    heartbeat_interval: Timeout = Field(
        default=_LIMITS.heartbeat_interval,
        description="how often agents and balancer give a sign of life",
    )
    heartbeat_timeout: Timeout = Field(
        default=_LIMITS.heartbeat_timeout, description="silence after which an agent counts as lost"
    )

    strict_fields: bool = Field(
        default=False,
        description="refuse, at OpenAI's, Anthropic's and Ollama's paths, the fields that are "
        "otherwise ignored, with an error that names the field",
    )
    media_urls: bool = Field(
        default=False,
        description="fetch pictures that requests link to (http and https), from public addresses "
        "only; otherwise requests have to carry them",
    )
    model_source_http: Annotated[
        tuple[Annotated[str, AfterValidator(http_host)], ...],
        Field(max_length=MAX_HTTP_HOSTS),
        Shown("HOST", "none"),
    ] = Field(
        default=(),
        description="a host from which agents may fetch models by http://, such as files.lan or "
        "files.lan:8080; may be repeated. Nothing protects such a file on its way: name its sha256",
    )
    model_memory: Annotated[Duration, Field(ge=0), Shown("DURATION")] = Field(
        default=_LIMITS.model_memory,
        description="how long a model that has gone still counts as known: requests for it wait "
        "in the queue; 0 forgets it at once",
    )

    @model_validator(mode="after")
    def _certificate_has_its_key(self) -> Self:
        if self.tls_cert is None and self.tls_key is not None:
            raise ValueError("--tls-cert: is missing, and --tls-key is given")
        if self.tls_key is None and self.tls_cert is not None:
            raise ValueError("--tls-key: is missing, and --tls-cert is given")
        if self.agent_ca is not None and self.tls_cert is None:
            raise ValueError("--agent-ca: needs --tls-cert and --tls-key")
        return self

    @model_validator(mode="after")
    def _workers_share_a_store(self) -> Self:
        if self.workers > 1 and self.state.kind == "memory":
            raise ValueError(
                f"--workers: {self.workers} processes need a --state that they share, "
                "sqlite:///FILE or postgresql://USER@HOST/DATABASE, not memory://"
            )
        return self

    @model_validator(mode="after")
    def _timeout_spans_interval(self) -> Self:
        if self.heartbeat_timeout <= self.heartbeat_interval:
            raise ValueError(
                "--heartbeat-timeout: must be longer than --heartbeat-interval "
                f"({format_duration(self.heartbeat_interval)}), "
                f"not {format_duration(self.heartbeat_timeout)}"
            )
        return self
