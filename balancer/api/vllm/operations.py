"""vLLM's calls about tokens as operations of an OpenAPI document."""

from ..openai.operations import OPENAI_ERRORS
from ..openapi.answers import Form
from ..openapi.bodies import Body
from ..openapi.document import OF_MODELS, Operation, json_answer, parameter
from .tokens import DETOKENIZE_BODY, TOKENIZE_BODY, VllmText, VllmTokenizer, VllmTokens


def _post(path: str, name: str, summary: str, body: Body, form: Form) -> Operation:
    return Operation(
        method="POST",
        path=path,
        name=name,
        summary=summary,
        body=body,
        answers={200: json_answer("The answer.", form)},
        errors=OF_MODELS,
        told=OPENAI_ERRORS,
    )


OPERATIONS = (
    _post("/tokenize", "VllmTokenize", "Turns a text into tokens.", TOKENIZE_BODY, VllmTokens),
    _post("/detokenize", "VllmDetokenize", "Turns tokens into a text.", DETOKENIZE_BODY, VllmText),
    Operation(
        method="GET",
        path="/tokenizer_info",
        name="VllmTokenizerInfo",
        summary="The texts that begin and end prompts, and the chat template.",
        parameters=(parameter("model", "query"),),
        answers={200: json_answer("The tokenizer.", VllmTokenizer)},
        errors=OF_MODELS,
        told=OPENAI_ERRORS,
    ),
)
