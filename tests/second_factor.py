"""Somebody with an authenticator app."""

import base64

from sqlalchemy import update

from backend.accounts import second_factor
from backend.accounts.models import SecondFactor, User
from backend.accounts.second_factor import code_at, step_of
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.security import Sealer
from tests.conftest import SECRET


async def give_app(db: Sessions, person: User) -> tuple[str, list[str]]:
    """The secret in the app, and the recovery codes."""
    sealer = Sealer([SECRET], "second factors")
    async with db.begin() as session:
        secret = await second_factor.begin(session, sealer, person.id)
        codes = await second_factor.confirm(session, sealer, person, _code(secret))
    assert codes
    return secret, codes


async def code_now(db: Sessions, secret: str) -> str:
    """What the app shows; half a minute has gone by since the last code that was used."""
    async with db.begin() as session:
        await session.execute(update(SecondFactor).values(last_step=SecondFactor.last_step - 1))
    return _code(secret)


def _code(secret: str) -> str:
    return code_at(base64.b32decode(secret), step_of(now()))
