import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from backend.embedded import postgres, processes, system_user
from backend.embedded.errors import CannotRun
from backend.embedded.postgres import EmbeddedPostgres


def plain(url: str) -> str:
    return url.replace("+psycopg", "")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    running = EmbeddedPostgres(tmp_path_factory.mktemp("server"), durable=False)
    running.start()
    running.create_database("parley")
    with psycopg.connect(plain(running.owner_url())) as connection:
        connection.execute("CREATE TABLE things (id bigserial PRIMARY KEY, name text NOT NULL)")
    yield running
    running.stop()


def test_the_app_reads_and_writes_rows(server: EmbeddedPostgres) -> None:
    with psycopg.connect(plain(server.app_url())) as connection:
        connection.execute("INSERT INTO things (name) VALUES ('a')")
        connection.execute("UPDATE things SET name = 'b'")
        rows = connection.execute("SELECT name FROM things").fetchall()
        connection.execute("DELETE FROM things")

    assert rows == [("b",)]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE others (id int)",
        "ALTER TABLE things ADD COLUMN more int",
        "DROP TABLE things",
        "TRUNCATE things",
        "CREATE SCHEMA others",
        "CREATE TEMPORARY TABLE others (id int)",
        "ALTER ROLE parley_app SUPERUSER",
        "SET ROLE parley_owner",
        "COPY things FROM PROGRAM 'true'",
    ],
)
def test_the_app_can_do_nothing_else(server: EmbeddedPostgres, statement: str) -> None:
    with (
        psycopg.connect(plain(server.app_url())) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement)


def test_the_owner_is_no_superuser(server: EmbeddedPostgres) -> None:
    with psycopg.connect(plain(server.owner_url())) as connection:
        row = connection.execute("SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user").fetchone()

    assert row == (False, False)


def test_creating_a_database_again_changes_nothing(server: EmbeddedPostgres) -> None:
    server.create_database("parley")

    with psycopg.connect(plain(server.app_url())) as connection:
        connection.execute("SELECT name FROM things")


def test_no_port_is_opened(server: EmbeddedPostgres) -> None:
    with psycopg.connect(plain(server.superuser_url())) as connection:
        row = connection.execute("SHOW listen_addresses").fetchone()

    assert row == ("",)


def test_nobody_else_can_reach_the_socket(server: EmbeddedPostgres) -> None:
    folder = server.socket_dir

    assert folder.stat().st_mode & 0o077 == 0
    assert (folder.parents[1] / "postgres").stat().st_mode & 0o077 == 0


def test_what_people_write_does_not_get_into_the_log(server: EmbeddedPostgres) -> None:
    with psycopg.connect(plain(server.app_url())) as connection, pytest.raises(psycopg.errors.DivisionByZero):
        connection.execute("SELECT 'a private word', 1 / 0")
    with psycopg.connect(plain(server.app_url())) as connection, pytest.raises(psycopg.errors.NotNullViolation):
        connection.execute("INSERT INTO things (id, name) VALUES (424242, NULL)")

    log = server.log.read_text()
    assert "division by zero" in log
    assert "private" not in log
    assert "424242" not in log


def test_data_are_there_after_a_restart(tmp_path: Path) -> None:
    first = EmbeddedPostgres(tmp_path)
    first.start()
    first.create_database("parley")
    with psycopg.connect(plain(first.owner_url())) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 'still here' AS word")
    first.stop()

    second = EmbeddedPostgres(tmp_path)
    second.start()
    with psycopg.connect(plain(second.app_url())) as connection:
        row = connection.execute("SELECT word FROM kept").fetchone()
    second.stop()

    assert row == ("still here",)


def test_a_server_that_was_left_behind_is_stopped_first(tmp_path: Path) -> None:
    left_behind = EmbeddedPostgres(tmp_path, durable=False)
    left_behind.start()

    new = EmbeddedPostgres(tmp_path, durable=False)
    new.start()

    assert new.running
    assert not left_behind.running
    new.stop()


def test_files_that_name_a_stranger_neither_harm_him_nor_stop_us(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path, durable=False)
    server.start()
    files = [tmp_path / "postgres" / "postmaster.pid", server.socket_dir / ".s.PGSQL.5432.lock"]
    texts = [file.read_text() for file in files]
    pid = texts[0].split()[0]
    server.stop()
    stranger = processes.start(["/bin/sleep", "600"], output=subprocess.DEVNULL, user=system_user.for_postgres())
    for file, text in zip(files, texts, strict=True):
        file.write_text(text.replace(pid, str(stranger.pid)))

    server.start()

    assert server.running
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()
    server.stop()


def test_an_interrupted_creation_is_begun_again(tmp_path: Path) -> None:
    unfinished = tmp_path / "postgres.unfinished"
    unfinished.mkdir()
    (unfinished / "PG_VERSION").write_text("18\n")

    server = EmbeddedPostgres(tmp_path, durable=False)
    server.start()

    assert server.running
    assert not unfinished.exists()
    server.stop()


def test_data_of_another_postgres_are_refused_with_a_sentence(tmp_path: Path) -> None:
    data = tmp_path / "postgres"
    data.mkdir()
    (data / "PG_VERSION").write_text("17\n")

    with pytest.raises(CannotRun, match="written by Postgres 17"):
        EmbeddedPostgres(tmp_path).start()


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path, durable=False)
    server.start()
    server.stop()
    (tmp_path / "postgres" / "postgresql.auto.conf").write_text("no_such_thing = 1\n")

    with pytest.raises(CannotRun, match=r"auto.conf\" contains errors"):
        server.start()


def test_a_server_that_never_came_to_its_log_format_says_why_too(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path, durable=False)
    server.start()
    server.stop()
    (tmp_path / "postgres" / "global").rename(tmp_path / "postgres" / "elsewhere")

    with pytest.raises(CannotRun, match=r"It says: .*pg_control"):
        server.start()


def test_a_deep_folder_gets_its_socket_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path / ("long name " * 8).strip() / "var"
    deep.mkdir(parents=True)

    server = EmbeddedPostgres(deep, durable=False)
    server.start()

    assert len(os.fsencode(server.socket_dir)) < 60
    with psycopg.connect(plain(server.superuser_url())):
        pass
    server.stop()
    server.socket_dir.rmdir()


def test_a_folder_that_only_we_may_enter_will_do(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)

    server = EmbeddedPostgres(private / "var", durable=False)
    (private / "var").mkdir(mode=0o700)
    server.start()

    assert server.running
    assert private.stat().st_mode & 0o007 == 0
    server.stop()


def test_commands_beside_it_find_a_running_database(server: EmbeddedPostgres) -> None:
    folder = server.log.parents[1]

    assert postgres.running_url(folder, postgres.APP) == server.app_url()


def test_commands_without_a_database_are_told_so(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="PARLEY_DATABASE_URL is not set"):
        postgres.running_url(tmp_path, postgres.APP)


def test_it_stops_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = f"""
import sys, time
from pathlib import Path
from backend.embedded.postgres import EmbeddedPostgres
EmbeddedPostgres(Path({str(tmp_path)!r}), durable=False).start()
print("started", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "started\n"
        pid = int((tmp_path / "postgres" / "postmaster.pid").read_text().split()[0])

        parent.kill()

    deadline = time.monotonic() + 10
    while processes.started_at(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes.started_at(pid) is None
