"""What a loaded model's states are known by among stored prompts."""

from importlib.metadata import version
from pathlib import Path

from ...shared.messages import ModelInfo
from .file_digest import file_digest
from .stored_prompt import ModelIdentity, Origin

ENGINE = "llama-cpp-python"
CACHE = "f16 keys, f16 values"
"""llama.cpp's default, which every context here has. Whether values lie transposed depends on the
device; that stands in the state itself, and llama.cpp takes none that lies differently."""


def origin_of(model: ModelInfo, path: Path) -> Origin:
    """The origin of what `model`, loaded from `path`, computes. Raises `OSError`."""
    return Origin(
        model=ModelIdentity(
            architecture=model.architecture,
            parameters=model.parameters,
            size_bytes=model.size_bytes,
            digest=file_digest(path),
        ),
        engine=f"{ENGINE} {version(ENGINE)}",
        cache=CACHE,
    )
