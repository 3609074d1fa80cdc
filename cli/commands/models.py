"""`arriero models`: list models; add, remove or change one; see where one fits."""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from ..arguments import Target, UsageError, make_parser, positive, run
from ..desired_state import add_flags, change, models_view
from ..output import console, in_gib, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from ...client.management import Management

ACTIONS = ("list", "add", "remove", "set", "fit")

EXAMPLES = """examples:
  arriero models add hf://org/repo:Q4_K_M --name qwen3-8b --replicas 2
  arriero models add /models/qwen3-8b.gguf      # a path on the agents' hosts
  arriero models set qwen3-8b --slots 8 --replicas all
  arriero models remove qwen3-8b
  arriero models fit hf://org/repo:Q4_K_M       # what each agent would choose; no download
"""

Json = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """List models; add, remove or change a desired model; see how each agent would load one.

    `fit` says what each agent would choose for a model, without downloading it.
    """
    return run(build_parser(), argv, _models)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = make_parser("models", main.__doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"{EXAMPLES}\n{parser.epilog}"
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="list")
    parser.add_argument(
        "model",
        nargs="?",
        metavar="SOURCE|NAME",
        help="add, fit: the source, hf://…, https://… or an absolute path on the agents' hosts; "
        "remove, set: the model's name",
    )
    desired = parser.add_argument_group("for add and set (fit takes --slots and --context-size)")
    desired.add_argument(
        "--name",
        help="name of the model in requests (default: from the name of its file or repository)",
    )
    desired.add_argument("--source", help="set: its new source")
    desired.add_argument(
        "--replicas", metavar="N|all", type=_replicas, help="number of agents (all that are free)"
    )
    desired.add_argument(
        "--slots",
        metavar="N",
        type=positive,
        help="requests that each agent answers at once with this model",
    )
    desired.add_argument("--context-size", metavar="N", type=positive, help="tokens of each slot")
    desired.add_argument(
        "--alias",
        metavar="NAME",
        action="append",
        help="another name of it; repeatable, '' removes all",
    )
    desired.add_argument(
        "--label",
        metavar="KEY=VALUE",
        action="append",
        type=_label,
        help="only on agents with this label; repeatable, '' removes all",
    )
    desired.add_argument(
        "--idle-timeout",
        metavar="DURATION",
        help="unload it after this time without requests, such as 15m",
    )
    desired.add_argument(
        "--preload",
        action=argparse.BooleanOptionalAction,
        help="load the model at once; with --no-preload, only at the first request",
    )
    add_flags(parser)
    return parser


def _replicas(text: str) -> int | str:
    if text == "all":
        return text
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(
            f"must be a whole number of at least 0, or all, not {text!r}"
        )
    return int(text)


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if text and not (key and equals):
        raise argparse.ArgumentTypeError(f"must be KEY=VALUE, not {text!r}")
    return key, value


async def _models(arguments: argparse.Namespace, target: Target) -> int | None:

    if arguments.action != "list" and arguments.model is None:
        has_source = arguments.action in ("add", "fit")
        what = "give its source" if has_source else "give its name"
        raise UsageError(f"{arguments.action} which model? {what.capitalize()}")
    async with target.client() as client:
        if arguments.action == "list":
            _list(await client.management.models(), as_json=arguments.json)
            return None
        if arguments.action == "fit":
            await _fit(client.management, arguments)
            return None
        make = _CHANGES[arguments.action](arguments)
        # Who removes one by its name has said what is to go.
        return await change(client.management, make, arguments, asks=False)


def _list(models: list[Json], *, as_json: bool) -> None:
    if as_json:
        print_json(models)
    elif models:
        console().print(models_view(models), soft_wrap=True)
    else:
        console().print("no models yet: see arriero models --help")


# ---- where one fits


async def _fit(management: "Management", arguments: argparse.Namespace) -> None:
    given = {"slots": arguments.slots, "context_size": arguments.context_size}
    chosen = {name: value for name, value in given.items() if value is not None}
    found = await management.model_fit(source_of(arguments.model), **chosen)
    if arguments.json:
        print_json(found)
        return
    if not found["agents"]:
        console().print("no agent is connected: see agent --help")
        return
    console().print(_fit_table(found["agents"]))
    console().print("the memory of models that run now does not count as free")


def _fit_table(agents: Sequence[Json]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("agent", "fits", "what it would choose"):
        table.add_column(name)
    for each in sorted(agents, key=lambda agent: str(agent["name"])):
        table.add_row(each["name"], *fit_in_words(each))
    return table


def fit_in_words(agent: Json) -> tuple[str, str]:
    """Return whether the model fits on an agent, and the agent's reasons."""
    fit, issue = agent["fit"], agent["issue"]
    if fit is None:
        hint = f"; {issue['hint']}" if issue["hint"] else ""
        return "unknown", f"{issue['message']}{hint}"
    if fit["missing"]:
        nearest = f"; {fit['nearest']}" if fit["nearest"] else ""
        return "no", f"{in_gib(fit['missing'])} too little, even for {fit['said']}{nearest}"
    return "yes", str(fit["said"])


# ---- changes


def add(arguments: argparse.Namespace) -> Callable[[Json], Json]:
    """Return a function that adds the model to the desired ones."""
    source = source_of(arguments.model)
    model: Json = {"name": arguments.name or name_of(source), "source": source}
    _write(model, arguments)

    def make(state: Json) -> Json:
        models = state.get("models", [])
        if any(each["name"] == model["name"] for each in models):
            name = model["name"]
            raise UsageError(
                f"{name} is desired already: give another --name, or `arriero models set {name}`"
            )
        return {**state, "models": [*models, model]}

    return make


def remove(arguments: argparse.Namespace) -> Callable[[Json], Json]:
    """Return a function that removes the model from the desired ones."""

    def make(state: Json) -> Json:
        model = _named(state, arguments.model)
        return {**state, "models": [each for each in state["models"] if each is not model]}

    return make


def put(arguments: argparse.Namespace) -> Callable[[Json], Json]:
    """Return a function that changes the values of the desired model."""

    def make(state: Json) -> Json:
        model = _named(state, arguments.model)
        changed = deepcopy(model)
        if arguments.name is not None:
            changed["name"] = arguments.name
        if arguments.source is not None:
            changed["source"] = source_of(arguments.source)
        _write(changed, arguments)
        models = [changed if each is model else each for each in state["models"]]
        return {**state, "models": models}

    return make


_CHANGES: Mapping[str, Callable[[argparse.Namespace], Callable[[Json], Json]]] = {
    "add": add,
    "remove": remove,
    "set": put,
}


def _named(state: Json, name: str) -> Any:
    """Return the desired model of this name. Raises `UsageError`."""
    models = state.get("models", [])
    found = next((each for each in models if each["name"] == name), None)
    if found is None:
        names = ", ".join(each["name"] for each in models) or "none"
        raise UsageError(f"no desired model is called {name!r}; desired: {names}")
    return found


def _write(model: Json, arguments: argparse.Namespace) -> None:
    """Set the values of the given flags in a model."""
    for field in ("slots", "context_size", "idle_timeout", "preload"):
        if (value := getattr(arguments, field)) is not None:
            model[field] = value
    if arguments.alias is not None:
        model["aliases"] = [each for each in arguments.alias if each]
    agents = dict(model.get("agents") or {})
    if arguments.replicas is not None:
        agents["replicas"] = arguments.replicas
    if arguments.label is not None:
        agents["labels"] = {key: value for key, value in arguments.label if key}
    if agents:
        model["agents"] = agents


def source_of(text: str) -> str:
    """Return a source; an absolute path is on the agents' hosts. Raises `UsageError`."""
    if text.startswith("/"):
        return f"file://{text}"
    if "://" not in text:
        raise UsageError(
            f"{text!r} is not a source: give hf://org/repo:Q4_K_M, https://…, or an absolute path "
            "on the agents' hosts"
        )
    return text


_PART = re.compile(r"-\d{5}-of-\d{5}$")
"""The end of the file names of a split model's parts."""


def name_of(source: str) -> str:
    """Return a name for the model of a source: the name of its file, or of its repository."""
    path = re.sub(r"[?#].*$", "", source.partition("://")[2])
    if source.startswith("hf://"):
        path = path.partition("@")[0]
        repository, colon, _ = path.partition(":")
        if colon or not path.lower().endswith(".gguf"):
            return re.sub(r"-gguf$", "", repository.rstrip("/").rpartition("/")[2], flags=re.I)
    file = path.rstrip("/").rpartition("/")[2]
    return _PART.sub("", re.sub(r"\.gguf$", "", file, flags=re.I))
