"""How long a request's prompt is: an agent knows, which has the template and the vocabulary."""

from ...shared.errors import RequestError
from ...shared.inference import GenerateRequest
from ...shared.queries import Counted, CountTokens
from ..fleet.asked import Question
from ..fleet.switchboard import Switchboard
from .field_names import SAME_NAMES, FieldNames
from .parts import only


async def count_tokens(
    switchboard: Switchboard, request: GenerateRequest, names: FieldNames = SAME_NAMES
) -> int:
    """In tokens, with all that the template adds. Raises `RequestError`, told by `names`."""
    question = Question(kind="text", parts=(CountTokens(request=request),), model=request.model)
    try:
        with switchboard.ask(question) as inquiry:
            return only(await inquiry.results(), Counted).num_tokens
    except RequestError as error:
        raise names.told(error) from error
