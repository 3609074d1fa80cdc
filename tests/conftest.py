"""How property tests run: on machines of any speed, so never against the clock."""

import sys

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Close what llama-cpp-python opens on import and leaves to the interpreter's end.

    With warnings as errors it would be complained about after pytest's closing line.
    """
    if (utils := sys.modules.get("llama_cpp._utils")) is not None:
        utils.outnull_file.close()
        utils.errnull_file.close()
