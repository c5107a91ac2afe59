"""`parley bench` and `parley capacity`, as somebody at a shell uses them."""

import json
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from backend import cli
from backend.bench import plan
from backend.bench.models import BenchRun
from backend.core.db import Sessions
from backend.core.errors import BadInput, NotFound
from backend.core.security import Sealer
from backend.core.settings import EngineSetting, Settings
from backend.engines import configured
from backend.engines.models import Engine, Source
from backend.ops import bench
from backend.usage.models import Cause, UsageRecord
from tests.fakes.engine import FakeEngine

ROOT = Path(__file__).parents[2]
SMALL = ["--people", "2", "--turns", "1", "--answer-tokens", "16"]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def locked() -> Iterator[FakeEngine]:
    with FakeEngine(models=["linden", "linden-embed"], api_key="sk-lab") as engine:
        engine.script = ("Well, ", "yes.")
        yield engine


def test_an_engine_is_measured_by_its_address(
    locked: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("LAB_KEY", "sk-lab")

    options = [*SMALL, "--key-env", "LAB_KEY", "--svg", "found.svg", "--json", "found.json"]
    code = cli.main(["bench", locked.url, *options])

    said = capsys.readouterr()
    assert (code, said.err) == (0, "")
    assert f"linden on {locked.url.removesuffix('/v1')} (vllm 0.32.0)" in said.out
    rows = [line.split() for line in said.out.splitlines() if line[:7].strip().isdecimal()]
    assert [row[:2] for row in rows] == [["1", "1"], ["2", "2"]]
    assert "A benchmark with one request at a time would have said" in said.out
    record = json.loads((tmp_path / "found.json").read_text())
    assert [level["people"] for level in record["levels"]] == [1, 2]
    assert ET.parse(tmp_path / "found.svg").getroot().get("role") == "img"
    assert "sk-lab" not in said.out + json.dumps(record)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "The engine does not accept Parley’s key."),
        (["--key-env", "NOWHERE"], "There is no key in NOWHERE."),
        (["--key-file", "nowhere"], "The key cannot be read from nowhere"),
        (["--people", "1000"], "“People at once” is a number from 1 to 256."),
        (["--svg", "no/such/place.svg"], "no/such/place.svg cannot be written."),
    ],
)
def test_what_keeps_it_from_measuring_is_a_sentence(
    locked: FakeEngine, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    code = cli.main(["bench", locked.url, *options])

    said = capsys.readouterr()
    assert code == 1
    assert words in said.err
    assert locked.requests == []


def test_a_dead_address_and_a_strange_one_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    codes = [cli.main(["bench", "http://127.0.0.1:9"]), cli.main(["bench", "http://user:secret@gpu-1"])]

    said = capsys.readouterr().err.splitlines()
    assert codes == [1, 1]
    assert "The engine cannot be reached." in said[0]
    assert said[1] == "Write the address like http://gpu-1:8000, without a user name."


async def _take_over(db: Sessions, settings: Settings, engine: FakeEngine) -> None:
    """As a start of Parley does: the engine of the deployment becomes a row, with its key."""
    setting = EngineSetting(name="lab", url=engine.url, api_key="sk-lab")
    named = settings.model_copy(update={"engines": (setting,)})
    async with db.begin() as session:
        await configured.take_over(session, named, Sealer(settings.secrets(), "engine keys"))


async def test_an_engine_is_measured_by_its_name_with_its_key_and_kept(
    locked: FakeEngine, db: Sessions, settings: Settings
) -> None:
    await _take_over(db, settings, locked)
    size = plan.make(people=2, turns=1, answer_tokens=16, seconds=60)

    found = await bench.measure(settings, "lab", size, database=lambda: settings.database_url, model="linden")
    with pytest.raises(NotFound, match="There is no engine named nobody here, only: lab"):
        await bench.measure(settings, "nobody", size, database=lambda: settings.database_url)

    assert [level.answered for level in found.levels] == [1, 2]
    async with db.begin() as session:
        (run,) = (await session.scalars(select(BenchRun))).all()
        used = (await session.scalars(select(UsageRecord))).all()
    assert (run.engine_name, run.upstream_name, run.result["ended"]) == ("lab", "linden", "done")
    assert [(row.cause, row.user_id, row.estimated) for row in used] == [(Cause.BENCH, None, False)] * 4


async def test_an_address_that_is_not_allowed_is_not_asked(
    locked: FakeEngine, db: Sessions, settings: Settings
) -> None:
    async with db.begin() as session:
        session.add(Engine(name="typed", url=locked.url, source=Source.DATABASE))
    narrow = settings.model_copy(update={"engine_allowed": ("10.0.0.0/8",)})

    with pytest.raises(BadInput):
        await bench.room(narrow, "typed", database=lambda: settings.database_url)

    assert locked.requests == []


def test_ctrl_c_ends_it_cleanly_and_frees_the_engine(locked: FakeEngine) -> None:
    locked.is_title = lambda _asked: False
    locked.plan(("Hello.",), ("Well, ", "yes."))
    locked.script = ("Well, ", *(f"{number} " for number in range(100_000)))
    locked.itl = 0.05
    environment = {"LAB_KEY": "sk-lab", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "backend", "bench", locked.url, *SMALL, "--key-env", "LAB_KEY"]
    measuring = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        locked.wait_until(lambda engine: engine.running == 2, seconds=60)
        measuring.send_signal(signal.SIGINT)
        out, err = measuring.communicate(timeout=60)
    finally:
        measuring.kill()

    locked.wait_until(lambda engine: engine.running == 0)
    assert (measuring.returncode, err) == (130, "")
    assert "It was ended by hand." in out
    assert len(locked.aborted) == 2


def test_capacity_is_reckoned_or_asked(locked: FakeEngine, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shape = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}
    (tmp_path / "config.json").write_text(json.dumps(shape))

    codes = [
        cli.main(["capacity", "--model", "Llama 3.1 8B", "--vram", "80"]),
        cli.main(["capacity", "--config", "config.json", "--parameters", "8.03", "--vram", "80"]),
        cli.main(["capacity", "--layers", "32"]),
        cli.main(["capacity", locked.url]),
    ]

    said = capsys.readouterr()
    known, read = said.out.split("\n\nwith conversations twice as long")[0], said.out
    assert codes == [0, 0, 1, 1]
    assert known.splitlines()[0].startswith("56 people with conversations of 8,192 tokens fit at the same time.")
    assert read.count(known) == 2
    assert said.err.splitlines()[0].startswith("Give --model, or --config with --parameters")
