"""The three cookies we set, and how they are protected."""

from dataclasses import dataclass

from fastapi import Request
from starlette.responses import Response


@dataclass(frozen=True)
class Cookie:
    """HttpOnly, SameSite=Lax (a link from elsewhere must arrive signed in), the whole site, no domain.

    Over https the name begins with `__Host-`, which makes the browser refuse it from anywhere else.
    """

    plain_name: str
    seconds: int | None

    def name(self, request: Request) -> str:
        return f"__Host-{self.plain_name}" if request.state.settings.is_https else self.plain_name

    def set(self, request: Request, response: Response, value: str) -> None:
        response.set_cookie(
            self.name(request),
            value,
            max_age=self.seconds,
            path="/",
            secure=request.state.settings.is_https,
            httponly=True,
            samesite="lax",
        )

    def clear(self, request: Request, response: Response) -> None:
        response.delete_cookie(
            self.name(request), path="/", secure=request.state.settings.is_https, httponly=True, samesite="lax"
        )


SESSION = Cookie("sid", seconds=30 * 24 * 3600)  # the table decides when it ends
SECOND_STEP = Cookie("step", seconds=600)  # the password was right, and the second factor is asked for
ONE_TIME_LINK = Cookie("link", seconds=3600)  # the secret of a set-up or invitation link, taken out of the address
PENDING_SIGN_INS = Cookie("oidc", seconds=600)  # company sign-ins under way (`backend/identity/pending.py`)
