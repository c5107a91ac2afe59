"""The compose file cannot be started here; what can be checked without Docker is checked."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from backend.core.settings import Settings, unknown_names
from backend.embedded.postgres import EmbeddedPostgres

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
NETWORKS: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["networks"]
EXAMPLE = dict(
    line.split("=", 1) for line in (ROOT / ".env.example").read_text().splitlines() if line and not line.startswith("#")
)


def test_every_value_of_the_compose_file_is_in_the_example_and_the_other_way_round() -> None:
    used = set(re.findall(r"\$\{(\w+)", TEXT))

    assert used == set(EXAMPLE)


def test_only_the_web_app_can_be_reached_and_only_from_this_machine() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}

    assert list(published) == ["web"]
    assert all(port.startswith("127.0.0.1:") for port in published["web"])


def test_database_and_engine_have_no_way_out() -> None:
    for name in ("postgres", "vllm", "migrate"):
        assert all(NETWORKS[network].get("internal") for network in SERVICES[name]["networks"]), name


def test_the_database_is_out_of_reach_for_engines() -> None:
    assert not set(SERVICES["postgres"]["networks"]) & set(SERVICES["vllm"]["networks"])


def test_images_are_pinned() -> None:
    for name, service in SERVICES.items():
        assert re.fullmatch(r"[\w./-]+:v?\d[\w.]*", service["image"]), name


def test_mounted_files_exist() -> None:
    mounted = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])]

    assert all((ROOT / path).is_file() for path in mounted if path.startswith("./"))


def test_the_web_app_takes_every_setting_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    given = SERVICES["migrate"]["environment"]
    environment = {name: _filled_in(value) for name, value in given.items() if value is not None}
    for name in list(os.environ):
        if name.startswith("PARLEY_"):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    settings = Settings()

    assert unknown_names(given) == []
    assert settings.engines[0].url == "http://vllm:8000"
    assert settings.database_url == "postgresql+psycopg://parley_app:secret-of-PARLEY_APP_PASSWORD@postgres/parley"


def _filled_in(value: str) -> str:
    """As compose does it, with the example's values; what is empty there is made up."""

    def fill(found: re.Match[str]) -> str:
        name, default = found["name"], found["default"]
        return EXAMPLE[name] or (f"secret-of-{name}" if found["required"] else default or "")

    return re.sub(r"\$\{(?P<name>\w+)(?P<required>:\?)?(?::-(?P<default>[^}]*))?\}", fill, value)


def test_the_roles_get_their_passwords(tmp_path: Path) -> None:
    postgres = EmbeddedPostgres(tmp_path, durable=False)
    postgres.start()
    with psycopg.connect(postgres.superuser_url().replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("CREATE DATABASE parley")
    environment = {
        "PATH": f"{postgres.programs}:/usr/bin:/bin",
        "PGHOST": str(postgres.socket_dir),
        "POSTGRES_USER": "postgres",
        "POSTGRES_DB": "parley",
        "PARLEY_OWNER_PASSWORD": "it's the owner",
        "PARLEY_APP_PASSWORD": "the app",
        "ROLES_SQL": str(ROOT / "backend/embedded/roles.sql"),
    }

    subprocess.run(["/bin/bash", ROOT / "deploy/postgres/roles.sh"], env=environment, check=True)

    with psycopg.connect(postgres.superuser_url().replace("+psycopg", "")) as connection:
        rows = connection.execute(
            "SELECT rolname, rolpassword LIKE 'SCRAM-SHA-256$%' FROM pg_authid WHERE rolname LIKE 'parley%' ORDER BY 1"
        ).fetchall()
        owner = connection.execute(
            "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'parley'"
        ).fetchone()
    postgres.stop()
    assert rows == [("parley_app", True), ("parley_owner", True)]
    assert owner == ("parley_owner",)
