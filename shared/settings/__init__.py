"""Settings: their declaration, the sources of their values, and their help."""
