from pathlib import Path

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.core.security import Sealer
from backend.core.settings import EngineSetting, Settings
from backend.embedded.postgres import EmbeddedPostgres
from backend.engines import configured
from backend.engines.models import Engine, Source
from backend.ops import doctor

SECRET = "fedcba9876543210fedcba9876543210"


async def findings(settings: Settings, database: str, environment: tuple[str, ...] = ()) -> dict[str, tuple[bool, str]]:
    """The last finding about each subject."""
    found = [finding async for finding in doctor.examine(settings, database, list(environment))]
    return {finding.subject: (finding.good, finding.sentence) for finding in found}


async def test_a_healthy_installation_is_told_so(settings: Settings, database: str, db: Sessions, carol: User) -> None:
    async with db.begin() as session:
        await configured.take_over(session, settings, Sealer(settings.secrets(), "engine keys"))

    found = await findings(settings, database)

    assert all(good for good, _ in found.values()), found
    assert found["engine fake"][1] == f"{settings.engines[0].url} serves fake-8b, fake-70b."


async def test_what_is_missing_is_named(settings: Settings, database: str) -> None:
    found = await findings(settings.model_copy(update={"secret_key": None}), database, ("PARLEY_PROT",))

    assert not found["secret"][0]
    assert found["accounts"] == (
        False,
        "Nobody is administrator yet. `parley setup-link` prints a link that makes one.",
    )
    assert not found["engines"][0]


async def test_a_mistyped_setting_is_named(settings: Settings, database: str) -> None:
    found = [finding async for finding in doctor.examine(settings, database, ["PARLEY_PROT", "PARLEY_PORT"])]

    assert next(finding.sentence for finding in found if not finding.good).startswith("PARLEY_PROT is not a setting")


async def test_the_key_that_parley_run_keeps_is_found(settings: Settings, database: str, tmp_path: Path) -> None:
    (tmp_path / "secret.key").write_text(SECRET)

    found = await findings(settings.model_copy(update={"secret_key": None}), database)

    assert found["secret"][0]


async def test_an_engine_that_is_away_is_named(database: str, db: Sessions, settings: Settings, carol: User) -> None:
    away = settings.model_copy(update={"engines": (EngineSetting(name="away", url="http://127.0.0.1:9"),)})
    async with db.begin() as session:
        await configured.take_over(session, away, Sealer(settings.secrets(), "engine keys"))

    found = await findings(settings, database)

    assert not found["engine away"][0]
    assert found["engine away"][1].startswith("http://127.0.0.1:9: ")


async def test_a_database_that_is_away_is_a_sentence(settings: Settings) -> None:
    found = await findings(settings, "postgresql+psycopg://nobody@127.0.0.1:9/parley")

    assert not found["database"][0]
    assert "tables" not in found


async def test_a_role_above_row_level_security_is_named(
    settings: Settings, postgres: EmbeddedPostgres, migrated: str
) -> None:
    found = await findings(settings, postgres.superuser_url(migrated))

    assert found["database"] == (
        False,
        "The role postgres is above row-level security. Use the one for the app.",
    )


async def test_an_empty_database_is_named(settings: Settings, postgres: EmbeddedPostgres) -> None:
    postgres.create_database("empty")

    found = await findings(settings, postgres.app_url("empty"))

    assert found["tables"] == (False, "The database is empty. Run `parley migrate` first.")


async def test_an_address_that_is_not_allowed_is_not_asked(
    database: str, db: Sessions, settings: Settings, carol: User
) -> None:
    """What an admin typed: a command must not be a way around the list that the pages hold it against."""
    async with db.begin() as session:
        session.add(Engine(name="lab", url=settings.engines[0].url, source=Source.DATABASE))

    allowed = await findings(settings, database)
    refused = await findings(settings.model_copy(update={"engine_allowed": ("10.0.0.0/8",)}), database)

    assert allowed["engine lab"][0]
    assert not refused["engine lab"][0]
