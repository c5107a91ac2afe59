import json

import psycopg
import pytest

from backend import cli
from tests.conftest import SECRET


@pytest.fixture(autouse=True)
def only_these_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    monkeypatch.setenv("PARLEY_PUBLIC_URL", "https://chat.corp.example")
    monkeypatch.setenv("PARLEY_SECRET_KEY", SECRET)


def test_a_person_is_added_listed_and_changed(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PARLEY_DATABASE_URL", database)

    codes = [
        cli.main(["user", "add", "ada@corp.example", "--name", "Ada", "--admin"]),
        cli.main(["user", "add", "bob@corp.example"]),
        cli.main(["user", "make-admin", "bob@corp.example"]),
        cli.main(["user", "reset-password", "bob@corp.example"]),
        cli.main(["user", "list"]),
    ]

    said = capsys.readouterr()
    assert codes == [0] * 5
    assert said.out.count("https://chat.corp.example/join?secret=") == 3
    assert said.out.count("admin") >= 3
    assert said.err == ""


def test_what_cannot_be_done_is_a_sentence_on_standard_error(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PARLEY_DATABASE_URL", database)

    codes = [cli.main(["user", "disable", "nobody@corp.example"]), cli.main(["user", "add", "no address"])]

    said = capsys.readouterr()
    assert codes == [1, 1]
    assert said.err.splitlines() == [
        "There is no account for nobody@corp.example. `parley user list` shows all.",
        "This does not look like an email address.",
    ]


def test_the_audit_is_verified_told_and_exported(
    database: str, owner_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PARLEY_DATABASE_URL", database)
    cli.main(["user", "add", "ada@corp.example", "--name", "=1+1"])
    capsys.readouterr()

    assert cli.main(["audit", "head"]) == 0
    head = capsys.readouterr().out.strip()
    assert cli.main(["audit", "verify", "--head", head]) == 0
    assert capsys.readouterr().out == f"The audit is whole: records 1 to 2. Its head is {head}\n"
    assert cli.main(["audit", "export"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["via"], line["action"], line["target_name"]) for line in lines] == [
        ("host", "person.added", "=1+1"),
        ("host", "person.link_made", "=1+1"),
    ]
    assert cli.main(["audit", "export", "--format", "csv"]) == 0
    assert ",'=1+1," in capsys.readouterr().out
    assert cli.main(["audit", "export", "--format", "syslog"]) == 0
    assert capsys.readouterr().out.startswith("<110>1 2")

    with psycopg.connect(owner_url, autocommit=True) as owner:
        owner.execute("DELETE FROM audit_events WHERE number > 1")
    with pytest.raises(SystemExit) as ended:
        cli.main(["audit", "verify", "--head", head])
    assert ended.value.code == 1
    assert "BAD  The end is missing: record 2 was there, and the last one is now 1." in capsys.readouterr().out
    assert cli.main(["audit", "verify", "--head", "2"]) == 1
    assert "A head is written as NUMBER" in capsys.readouterr().err


def test_migrating_twice_is_harmless(
    owner_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PARLEY_MIGRATE_DATABASE_URL", owner_url)

    assert cli.main(["migrate"]) == 0
    assert capsys.readouterr().out == "The database is up to date.\n"


def test_a_database_that_is_away_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PARLEY_DATABASE_URL", "postgresql://nobody@127.0.0.1:9/parley")

    assert cli.main(["user", "list"]) == 1
    assert capsys.readouterr().err.startswith("The database does not answer: ")


def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PARLEY_PORT", "eighty")

    assert cli.main(["user", "list"]) == 1
    assert capsys.readouterr().err == "PARLEY_PORT must be a whole number.\n"


def test_serving_without_a_database_or_a_secret_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["serve"]) == 1
    assert capsys.readouterr().err.startswith("PARLEY_DATABASE_URL must be set.")

    monkeypatch.setenv("PARLEY_DATABASE_URL", "postgresql://nobody@127.0.0.1:9/parley")
    monkeypatch.delenv("PARLEY_SECRET_KEY")
    assert cli.main(["serve"]) == 1
    assert capsys.readouterr().err.startswith("PARLEY_SECRET_KEY or PARLEY_SECRET_KEY_FILE must be set.")
