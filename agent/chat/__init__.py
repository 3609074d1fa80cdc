"""Chat formats: templates, model families, tool calls, grammars, and detokenization.

`templates` renders prompts, `families` describes the formats that models write, `calls` and
`parsing` parse answers, `grammar` constrains them, `output` turns tokens into text.
"""
