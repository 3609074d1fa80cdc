"""`arriero keys`: create, list, revoke and rotate access keys.

A key is printed once, alone on stdout, so that it can be piped; messages go to stderr. No key is
ever an argument, since every user of a host can see arguments.
"""

import argparse
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from ...client.errors import RequestFailed
from ..arguments import Target, UsageError, make_parser, positive, run
from ..output import console, print_json, say

ACTIONS = ("create", "list", "revoke", "rotate", "bootstrap")
ROLES = ("inference", "viewer", "operator", "admin", "agent")
PRIORITIES = ("batch", "default", "interactive")
LIMITS = ("requests-per-minute", "tokens-per-minute", "max-concurrent", "max-queued", "max-tokens")

EXAMPLES = """examples:
  arriero keys bootstrap --state sqlite:///state.db > admin.key
  arriero keys create chat-app --role inference --models qwen3 --expires 90d --key-file admin.key
  arriero keys create rack-7 --role agent --output agent.key --key-file admin.key
"""

Json = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Create, list, revoke and rotate access keys."""
    return run(build_parser(), argv, _keys)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = make_parser("keys", main.__doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"{EXAMPLES}\n{parser.epilog}"
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="list")
    parser.add_argument("name", nargs="?", help="the key's name (bootstrap: admin)")
    parser.add_argument(
        "--state",
        metavar="URL",
        help="change the keys in this store instead of over the management port: sqlite:///FILE, "
        "postgresql://…, as the balancer's --state",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        help="write the key to a new file that only you can read, instead of to stdout",
    )
    _add_spec(parser.add_argument_group("create"))
    return parser


def _add_spec(group: Any) -> None:
    group.add_argument("--role", choices=ROLES)
    group.add_argument(
        "--models", metavar="A,B", help="allow only these models (for an agent: to serve)"
    )
    group.add_argument(
        "--label",
        metavar="KEY=VALUE",
        action="append",
        help="a label that an agent with this key may have; repeatable",
    )
    group.add_argument(
        "--expires", metavar="DURATION", help="time until it expires, such as 90d or 12h"
    )
    for name in LIMITS:
        group.add_argument(f"--{name}", metavar="N", type=positive)
    group.add_argument("--priority", choices=PRIORITIES, help="highest priority of its requests")
    group.add_argument(
        "--default-priority",
        choices=PRIORITIES,
        help="priority of its requests that give none (default: default)",
    )


async def _keys(arguments: argparse.Namespace, target: Target) -> None:
    if arguments.action == "bootstrap":
        await _bootstrap(arguments)
    elif arguments.state is not None:
        await _in_store(arguments.state, lambda keys: _act(arguments, keys))
    else:
        async with target.client() as client:
            await _act(arguments, client.management)


class Keys(Protocol):
    """The access keys of a balancer: through its management port, or in its store."""

    async def keys(self) -> list[Json]: ...

    async def create_key(self, name: str, role: str, **more: Any) -> Json: ...

    async def revoke_key(self, name: str) -> Json: ...

    async def rotate_key(self, name: str) -> Json: ...


async def _act(arguments: argparse.Namespace, keys: Keys) -> None:
    if arguments.action == "list":
        _list(await keys.keys(), as_json=arguments.json)
        return
    if arguments.name is None:
        raise UsageError(f"{arguments.action} which key? Give its name")
    _check_output(arguments.output)
    if arguments.action == "create":
        spec = _spec(arguments)
        _tell(arguments, await keys.create_key(arguments.name, **spec))
    elif arguments.action == "rotate":
        _tell(arguments, await keys.rotate_key(arguments.name))
    else:
        revoked = await keys.revoke_key(arguments.name)
        if arguments.json:
            print_json(revoked)
        else:
            say(f"{revoked['name']} is revoked; {_effect(arguments.state)}")


def _effect(state: str | None) -> str:
    if state is None:
        return "its open requests and connections have ended"
    return "a running balancer with this store accepts it until it is restarted"


def _spec(arguments: argparse.Namespace) -> Json:
    """Return the body of the request without the name. Raises `UsageError`."""
    if arguments.role is None:
        raise UsageError(f"--role: is missing; choose from {', '.join(ROLES)}")
    limits = {name.replace("-", "_"): None for name in LIMITS}
    names = ("role", "expires", "priority", "default_priority", *limits)
    given = {name: getattr(arguments, name) for name in names}
    if arguments.models is not None:
        given["models"] = [name.strip() for name in arguments.models.split(",") if name.strip()]
    if arguments.label:
        given["labels"] = dict(map(_label, arguments.label))
    return {name: value for name, value in given.items() if value is not None}


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--label: must be KEY=VALUE, not {text!r}")
    return key, value


# ---- the key, once


def _check_output(file: Path | None) -> None:
    """Check that the output file does not exist, before a key is created for it."""
    if file is not None and file.exists():
        raise UsageError(f"--output: {file} exists; name a new file")


def _tell(arguments: argparse.Namespace, made: Json) -> None:
    """Write the key to the file or to stdout, and messages to stderr."""
    if arguments.output is not None:
        _write(arguments.output, made["key"])
        made = {name: value for name, value in made.items() if name != "key"}
        say(f"the key {made['name']} ({made['role']}) is in {arguments.output}")
    if arguments.json:
        print_json(made)
    elif arguments.output is None:
        say(f"the key {made['name']} ({made['role']}), which is shown only once:")
        say(made["key"], sys.stdout)
    if made.get("expires_at") is not None:
        say(f"it expires at {_time(made['expires_at'])}")


def _write(file: Path, key: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(key + "\n")


# ---- in the store


async def _bootstrap(arguments: argparse.Namespace) -> None:
    if arguments.state is None:
        raise UsageError("bootstrap: --state is missing; give the balancer's own, or memory://")
    _check_output(arguments.output)
    name = arguments.name or "admin"
    if arguments.state == "memory://":
        from ...balancer.access.access_key import NUM_RANDOM_BYTES, new_key

        _tell(
            arguments, {"name": name, "role": "admin", "key": new_key(os.urandom(NUM_RANDOM_BYTES))}
        )
        say(
            "memory:// stores no keys: start the balancer with --admin-key-file and a file with "
            "this key"
        )
        return

    async def first(keys: "_InStore") -> None:
        _tell(arguments, await keys.bootstrap(name))

    await _in_store(arguments.state, first, may_be_new=True)


@dataclass(frozen=True, slots=True)
class _InStore:
    """The keys of a store, with the methods of the management port's client."""

    service: Any

    async def bootstrap(self, name: str) -> Json:
        from ...balancer.access.offline import bootstrap

        return self._new(*await bootstrap(self.service, name))

    async def keys(self) -> list[Json]:
        return [self._shown(key) for key in self.service.records()]

    async def create_key(self, name: str, role: str, **more: Any) -> Json:
        from ...balancer.access.key_spec import parse_spec

        spec = parse_spec(json.dumps({"name": name, "role": role, **more}))
        return self._new(*await self.service.create(spec))

    async def revoke_key(self, name: str) -> Json:
        return self._shown(await self.service.revoke(name, may_be_last=True))

    async def rotate_key(self, name: str) -> Json:
        return self._new(*await self.service.rotate(name))

    def _new(self, key: Any, secret: str) -> Json:
        return {**self._shown(key), "key": secret}

    def _shown(self, key: Any) -> Json:
        from ...balancer.management.key_routes import key_json

        return dict(key_json(key, self.service.now()))


async def _in_store(
    state: str, act: Callable[[_InStore], Awaitable[None]], *, may_be_new: bool = False
) -> None:
    from ...balancer.access.offline import keys_in
    from ...shared.errors import RequestError

    try:
        async with keys_in(state, may_be_new=may_be_new) as service:
            await act(_InStore(service))
    except RequestError as error:
        raise RequestFailed(error.code, error.message) from error


# ---- the list


def _list(keys: list[Json], *, as_json: bool) -> None:
    if as_json:
        print_json(keys)
        return
    from rich.table import Table

    columns = ("name", "role", "state", "models", "limits", "created", "expires", "last used")
    table = Table(*columns, box=None)
    for key in keys:
        models = ", ".join(key["models"] or ()) or "all"
        table.add_row(
            key["name"],
            key["role"],
            _state(key),
            models,
            _limits(key),
            _time(key["created_at"]),
            _time(key["expires_at"]),
            _time(key["last_used_at"]),
        )
    console().print(table if keys else "there are no keys, so nobody needs one")


def _state(key: Json) -> str:
    if key["revoked_at"] is not None:
        return f"revoked {_time(key['revoked_at'])}"
    return "valid" if key["is_valid"] else "expired"


def _limits(key: Json) -> str:
    names = [name.replace("-", "_") for name in LIMITS]
    limits = [f"{key[name]} {name.replace('_', ' ')}" for name in names if key[name] is not None]
    if key["priority"] != "interactive":
        limits.append(f"priority {key['priority']}")
    if key.get("default_priority") is not None:  # balancers before it have none
        limits.append(f"priority {key['default_priority']} if none is given")
    return ", ".join(limits) or "none"


def _time(seconds: float | None) -> str:
    if not seconds:
        return "-"
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")
