"""What `/api/v1/session` answers, as a type; the OpenAPI document is made of it."""

from typing_extensions import TypedDict

from ...access.identity import Role


class SessionState(TypedDict):
    """Whether a key is needed here at all, and who is logged in; all null where nobody is.

    `csrf` is what calls that change something send as `x-arriero-csrf` beside the cookie.
    `expires_at`: seconds since 1970.
    """

    needs_key: bool
    name: str | None
    role: Role | None
    csrf: str | None
    expires_at: float | None
