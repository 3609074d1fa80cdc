"""Chat formats: templates, model families, tool calls, constraints, and detokenization.

`templates` renders prompts, `families` describes the formats that models write, `parsing` reads
answers, `constraints` makes grammars of what they must match, `output` turns tokens into text.
"""
