"""Chat formats: templates, model families, tool calls, constraints, and detokenization.

`templates` renders prompts, `families` describes the formats that models write, and `parsing`
reads answers. `constraints` compiles the grammars that answers must match. `output` turns tokens
into text.
"""
