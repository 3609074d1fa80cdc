"""Brings an assignment's file onto this host, and reads from its header what it needs."""

import asyncio
import logging

from ...shared.messages import Issue
from ...shared.models.assignments import Assignment
from ...shared.reports.model_info import ModelInfo
from ..models.gguf_header import HeaderError, read_header
from ..models.memory_estimate import estimate
from ..models.port import FetchedModel, FetchError, Lease, ModelFiles, OnProgress
from ..settings import AgentSettings
from .assigned_settings import OptionsError, assigned_settings
from .decisions import ModelFile

logger = logging.getLogger(__name__)


async def fetch_model(
    files: ModelFiles, settings: AgentSettings, assignment: Assignment, *, on_progress: OnProgress
) -> tuple[ModelFile, Lease] | Issue:
    """The file, and the lease that keeps it; or why it cannot be served here."""
    try:
        assigned_settings(settings, assignment, "")  # before anything is downloaded
        fetched = await files.fetch(
            assignment.source, sha256=assignment.sha256, on_progress=on_progress
        )
        try:
            file = await asyncio.to_thread(_inspect, fetched, settings, assignment)
        except BaseException:
            fetched.lease.release()
            raise
        return file, fetched.lease
    except (OptionsError, FetchError) as error:
        return error.issue
    except HeaderError as error:
        return Issue(
            code="not_a_gguf",
            message=f"{assignment.source} cannot be read as a model: {error}",
            hint="name another file, or bring this one there again",
        )
    except Exception:  # the boundary of a fetch: the fleet is told, the log has it all
        logger.exception("%s could not be fetched", assignment.source)
        return Issue(
            code="fetch_failed",
            message="the agent failed to fetch the model",
            hint="the agent's log has the details",
        )


def _inspect(fetched: FetchedModel, settings: AgentSettings, assignment: Assignment) -> ModelFile:
    """Raises `HeaderError` and `OSError`."""
    wanted = assigned_settings(settings, assignment, str(fetched.path))
    with fetched.path.open("rb") as file:
        header = read_header(file)
    found = estimate(
        header,
        file_bytes=fetched.bytes,
        slots=wanted.slots,
        num_cells=wanted.kv_cells or wanted.slots * wanted.context_size,
        max_draft=wanted.speculate,
    )
    info = ModelInfo(
        name=assignment.name,
        architecture=header.architecture,
        parameters=header.num_parameters,
        size_bytes=fetched.bytes,
        context_size=wanted.context_size,
    )
    return ModelFile(str(fetched.path), None if found is None else found.total, info)
