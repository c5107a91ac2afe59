"""`make migration m="…"`: write a revision from what the models say and an up-to-date database does not have."""

import sys
import tempfile
from pathlib import Path

from alembic import command

from backend.core import migrations
from backend.embedded.postgres import EmbeddedPostgres


def write(message: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        postgres = EmbeddedPostgres(Path(folder), durable=False)
        postgres.start()
        try:
            postgres.create_database("parley")
            migrations.upgrade(postgres.owner_url())
            command.revision(migrations.alembic_config(postgres.owner_url()), message, autogenerate=True)
        finally:
            postgres.stop()


if __name__ == "__main__":
    write(sys.argv[1])
