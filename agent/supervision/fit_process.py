"""A program that determines how this host would load a model that it does not have yet.

The program asks servers for headers, and drivers for free memory. Both may hang, so callers run it
in a child process (`fit_reader`). It reads one line of JSON, writes one line, and ends when its
standard input does.
"""

import logging
from collections.abc import Callable, Sequence

from ...shared.errors import shortened
from ...shared.messages import MAX_WORDS, FitRead, Issue
from ...shared.models.assignments import Assignment
from ...shared.reports.model_info import MAX_SAID, ModelFit
from .. import child
from ..engine.llama.backends import library
from ..engine.llama.fitting import devices_for
from ..engine.llama.log import route_log
from ..engine.llama.rpc import use_servers
from ..engine.load_options import LoadOptions, servers_of
from ..engine.model_error import ModelError
from ..gguf.choice import Fitted, chosen
from ..gguf.header import HeaderError
from ..gguf.memory_estimate import ModelFileSizes, sizes_of
from ..host_facts import available_memory
from ..models.fetch_process import broken
from ..models.model_file import ModelFile
from ..models.models_folder import ModelsFolder
from ..models.port import FetchError, OtherFile
from ..models.source_headers import source_headers
from .assigned_settings import OptionsError, assigned_settings
from .fit_reader import FIT_ANSWERS, FIT_ORDERS, FitOrder
from .load_failures import nearest_in_words
from .model_fetch import LEAST_CONTEXT

logger = logging.getLogger(__name__)


def main() -> None:
    """Answer the first line of standard input; end when standard input does."""
    child.work_aside()
    orders, answers = child.orders(), child.reports()
    line = orders.readline()
    if not line:
        return
    child.obey(orders, lambda _: None)
    answers.write(FIT_ANSWERS.encode(answer(FIT_ORDERS.decode(line))))


def answer(order: FitOrder) -> FitRead:
    """Return how the host would load the model, or the issue that prevents an answer."""
    question = order.question
    try:
        return FitRead(id=question.id, fit=_fit(order))
    except (FetchError, OptionsError) as error:
        issue = error.issue
    except HeaderError as error:
        issue = Issue(code="not_a_gguf", message=f"{question.source}: {error}")
    except ModelError as error:
        issue = Issue(code="invalid_options", message=str(error))
    except OSError as error:
        issue = broken(error, order.settings.models_dir).issue
    except Exception as error:  # the boundary: whoever asked gets an issue, the log has it all
        logger.exception("cannot determine what would be chosen for a model")
        issue = Issue(
            code="fit_failed", message=f"the agent failed to determine what fits: {error!r}"
        )
    return FitRead(id=question.id, issue=_bounded(issue))


def _bounded(issue: Issue) -> Issue:
    """Return `issue` with bounded texts, because servers influence them."""
    return Issue(
        code=issue.code,
        message=shortened(issue.message, MAX_WORDS),
        hint=shortened(issue.hint, MAX_WORDS),
    )


def _fit(order: FitOrder) -> ModelFit:
    """Return how the host would load the model.

    Raises `FetchError`, `OptionsError`, `HeaderError`, `ModelError` and `OSError`.
    """
    settings, question = order.settings, order.question
    assignment = Assignment(
        name="model",
        source=question.source,
        slots=question.slots,
        context_size=question.context_size,
    )
    options = assigned_settings(settings, assignment, ModelFile("model.gguf")).load_options
    if options.fit == "off":
        raise OptionsError(
            "this agent does not choose settings, since it was started with --fit off"
        )
    folder = ModelsFolder(settings.models_dir, settings.models_limit)
    headers = source_headers(question.source, folder, http_hosts=question.http_hosts)
    file = sizes_of(headers.parts)
    choose = _chooser(file, options)
    found = choose(options)
    if found is None:
        raise OptionsError(
            f"the header of {question.source} has too little information to choose settings"
        )
    nearest = _nearest(found, options, choose, file.num_bytes, headers.others)
    return _in_message(found, file.num_bytes, nearest)


Choose = Callable[[LoadOptions], Fitted | None]


def _chooser(file: ModelFileSizes, options: LoadOptions) -> Choose:
    """Return a function that chooses options, with the memory that is free now."""
    route_log()
    library()
    use_servers(servers_of(options.rpc))
    devices, host = devices_for(options), available_memory()
    return lambda options: chosen(file, options, devices, host=host)


def _nearest(
    found: Fitted,
    options: LoadOptions,
    choose: Choose,
    file_bytes: int,
    others: Sequence[OtherFile],
) -> str:
    """Return the nearest choices that fit, in words; empty if the model fits."""
    missing = found.fit.missing
    if not missing:
        return ""
    small = [each for each in others if file_bytes - each.bytes >= missing]
    other = max(small, key=lambda each: each.bytes, default=None)
    return nearest_in_words(_shorter(options, choose), other)


def _shorter(options: LoadOptions, choose: Choose) -> int | None:
    """Return a shorter context in tokens that fits, or `None` if no shorter context fits.

    The explicit context of `options` is halved until it fits. If `context_size` is `auto`, the
    function returns `None`.
    """
    if options.context_size == "auto":
        return None
    tokens = options.context_size // 2
    while tokens >= LEAST_CONTEXT:
        found = choose(options.model_copy(update={"context_size": tokens}))
        if found is not None and not found.fit.missing:
            return tokens
        tokens //= 2
    return None


def _in_message(found: Fitted, file_bytes: int, nearest: str) -> ModelFit:
    options, fit = found.options, found.fit
    return ModelFit(
        said=shortened(found.said, MAX_SAID),
        file_bytes=file_bytes,
        missing=fit.missing,
        nearest=shortened(nearest, MAX_SAID),
        slots=options.slots,
        context_size=options.slot_tokens,
        cells=options.num_cells,
        gpu_layers=fit.gpu_layers,
        cpu_experts=fit.cpu_experts,
        cache_type_k=options.cache_type_k,
        cache_type_v=options.cache_type_v,
    )


if __name__ == "__main__":
    main()
