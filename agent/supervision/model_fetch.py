"""Brings an assignment's file onto this host, and reads from its header what it needs."""

import logging

from ...shared.messages import Issue
from ...shared.models.assignments import Assignment
from ..models.port import FetchError, Lease, ModelFiles, OnProgress
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
        return ModelFile(str(fetched.path)), fetched.lease
    except (OptionsError, FetchError) as error:
        return error.issue
    except Exception:  # the boundary of a fetch: the fleet is told, the log has it all
        logger.exception("%s could not be fetched", assignment.source)
        return Issue(
            code="fetch_failed",
            message="the agent failed to fetch the model",
            hint="the agent's log has the details",
        )
