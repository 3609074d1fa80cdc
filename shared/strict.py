"""How whatever comes from outside is checked."""

from pydantic import ConfigDict

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""No field we do not know, no conversion between types, no NaN or infinity."""
