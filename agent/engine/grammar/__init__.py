"""Which tokens a constraint allows next: compiled grammars and their masks."""
