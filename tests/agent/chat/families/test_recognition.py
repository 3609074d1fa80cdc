import pytest

from arriero.agent.chat.families.recognition import family_of


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("{{ '<tool_call>' }}", "qwen"),
        ("{{ '<think>' }}", "qwen"),
        ("<tool_call>{{ n }}<arg_key>", "glm"),
        ("<|start_header_id|>{{ '<|python_tag|>' }}", "llama"),
        ("<|start_header_id|>", "llama"),
        ("<|start_header_id|><tool_call>", "qwen"),
        ("[INST] [TOOL_CALLS]", "mistral"),
        ("<｜Assistant｜><think>", "deepseek"),
        ("<|im_middle|><|tool_calls_section_begin|>", "kimi"),
        ("<|turn><|channel>thought <|tool_call>", "gemma"),
        ("<start_of_turn>", "plain"),
        ("<|start|>assistant<|channel|>final<|message|>", "gpt-oss"),
        ("<|start_of_role|> <|tool_call|>", "granite"),
        ("<|start_of_role|> <tool_call>", "granite"),
        ("<|user|> <|end|> <|assistant|>", "phi"),
        ("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|> Action:", "command-r"),
        ("<minimax:tool_call><think>", "minimax"),
        ("<tool_calls> <think>", "minimax-m1"),
        ("]<]minimax[>[<tool_call> <mm:think>", "minimax-m3"),
        ("'｜DSML｜' <｜Assistant｜> <think>", "dsml"),
        ("'<|open|>' + tag + '<|sep|>' '<|close|>'", "kimi-k3"),
        ("<seed:think> <function=", "seed"),
        ("<TOOLCALL> <think>", "nemotron"),
        ("List of tools: [ </think>", "lfm"),
        ("<|header_start|>", "llama4"),
        ("<|tools_prefix|>", "apertus"),
        ("<|assistant|><|user|><|end|> [BEGIN FINAL RESPONSE]", "apriel"),
        ("'<tool_call{}>'.format(':opensource')", "hunyuan"),
        ("<|tool_call:begin|> <|think|>", "solar"),
        ("<|role_sep|> <|message_sep|>", "gigachat"),
        ('<function name="x"> <think>', "minicpm"),
        ("<|start_header_id|> <{start_tag}={function_name}>", "functionary"),
        ("<|start_header_id|> >>>all", "functionary-v3.2"),
        ("<thought>", "exaone"),
        ("<thought> <tool_call>", "qwen"),
        ("<tool_calls> <tool_call>", "qwen"),
        ("<|tool_call|> <tool_call>", "phi"),
        ("{{ messages[0].content }}", "plain"),
        ("", "plain"),
    ],
)
def test_templates_show_their_family(source: str, name: str) -> None:
    assert family_of(source).name == name
