"""The tags in which families write the arguments of calls one by one."""

from ..calls.tagged_calls import Tags

FUNCTION_TAGS = Tags(
    "<function=", ">", "<parameter=", ">", "", "</parameter>", "</function>", has_lines=True
)
SEED_TAGS = Tags("<function=", ">", "<parameter=", ">", "", "</parameter>", "</function>")
ARG_TAGS = Tags("", "", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "</tool_call>")
INVOKE_TAGS = Tags("", '">', '<parameter name="', '">', "", "</parameter>", "</invoke>")
PARAM_TAGS = Tags(
    *("", '">', '<param name="', '">', "", "</param>", "</function>"),
    quotes=("<![CDATA[", "]]>"),
)
HUNYUAN_TAGS = Tags(
    "",
    "<tool_sep:opensource>",
    "<arg_key:opensource>",
    "</arg_key:opensource>",
    "<arg_value:opensource>",
    "</arg_value:opensource>",
    "</tool_call:opensource>",
)
DSML_TAGS = Tags(
    "",
    '">',
    '<｜DSML｜parameter name="',
    '">',
    "",
    "</｜DSML｜parameter>",
    "</｜DSML｜invoke>",
    typed_key_ends=(('" string="true">', True), ('" string="false">', False)),
)
KIMI_K3_TAGS = Tags(
    "",
    '" index="',
    '<|open|>argument key="',
    '"<|sep|>',
    "",
    "<|close|>argument<|sep|>",
    "<|close|>call<|sep|>",
    number_end='"<|sep|>',
    typed_key_ends=tuple(
        (f'" type="{name}"<|sep|>', name == "string")
        for name in ("string", "number", "integer", "boolean", "array", "object", "null")
    ),
)
