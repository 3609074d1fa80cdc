"""A program that writes the devices of this host as one line of JSON.

A GPU's driver takes memory, may hang, and may end the process. So callers run this program
(`python -m`) in a child process. Its arguments are RPC servers.
"""

import json
import logging
import sys
from dataclasses import asdict
from typing import Any

from .backend_problems import NAMES, problems
from .engine.llama.backends import built, cpu_library, cpu_variant, unloadable
from .engine.llama.devices import loaded_devices
from .engine.llama.rpc import use_servers
from .engine.model_error import ModelError
from .host_gpus import gpu_makers


def main() -> None:
    """Write `devices` that layers can be offloaded to, the `cpu` variant, and `problems`."""
    for server in sys.argv[1:]:
        try:
            use_servers([server])
        except ModelError as error:
            logging.warning("%s", error)  # on standard error, which is the agent's
    print(json.dumps(look()))  # noqa: T201


def look() -> dict[str, Any]:
    """Return the devices. Raises `ModelError` if llama.cpp has no backend that runs here."""
    devices = [device for _, device in loaded_devices().gpus()]
    names = [device.name for device in devices]
    found = problems(gpu_makers(), built(), unloadable(tuple(NAMES)), names)
    return {
        "devices": [asdict(device) for device in devices],
        "cpu": cpu_variant(cpu_library()),
        "problems": [asdict(each) for each in found],
    }


if __name__ == "__main__":
    main()
