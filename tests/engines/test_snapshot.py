from collections.abc import AsyncIterator

import pytest

from backend.core.clock import now
from backend.core.ids import new_id
from backend.engines import snapshot
from backend.engines.client import EngineClient
from backend.engines.models import Deployment, Engine, Model, Source
from backend.engines.probing import Health
from backend.engines.snapshot import Snapshot

WELL = Health()
AWAY = Health("The engine cannot be reached.", now(), now())


@pytest.fixture
async def client() -> AsyncIterator[EngineClient]:
    async with EngineClient("http://127.0.0.1:1") as client:
        yield client


def a_model(name: str, *, published: bool = True, position: int = 0) -> Model:
    return Model(
        id=new_id(),
        name=name,
        description="",
        system_prompt="Be kind.",
        published=published,
        position=position,
        color="",
        thinking="",
        adjustable=[],
        for_everybody=True,
    )


def an_engine(name: str, *models: Model | None, enabled: bool = True, source: Source = Source.DATABASE) -> Engine:
    engine = Engine(id=new_id(), name=name, url=f"http://{name}:8000", source=source, enabled=enabled)
    engine.deployments = [
        Deployment(id=new_id(), model=model, model_id=model and model.id, upstream_name=f"{number}-upstream")
        for number, model in enumerate(models)
    ]
    return engine


def build(client: EngineClient, *engines: Engine, away: tuple[Engine, ...] = ()) -> Snapshot:
    ids = {engine.id for engine in away}
    return snapshot.build(engines, lambda _id: client, lambda id_: AWAY if id_ in ids else WELL, ())


async def test_published_models_are_offered_in_their_order(client: EngineClient) -> None:
    last, first, second = a_model("Aspen", position=2), a_model("Zelkova", position=1), a_model("yew", position=2)

    offers = build(client, an_engine("east", second, last, first)).offers

    assert [offer.name for offer in offers] == ["Zelkova", "Aspen", "yew"]
    assert offers[0].system_prompt == "Be kind."
    assert offers[0].available
    assert offers[0].problem is None
    (endpoint,) = offers[0].endpoints
    assert (endpoint.engine_name, endpoint.upstream_name, endpoint.client) == ("east", "2-upstream", client)


async def test_a_model_on_two_engines_is_one_offer(client: EngineClient) -> None:
    linden = a_model("Linden")
    east, west = an_engine("east", linden), an_engine("west", linden)

    (offer,) = build(client, east, west, away=(east,)).offers

    assert [(endpoint.engine_name, endpoint.problem) for endpoint in offer.endpoints] == [
        ("east", AWAY.problem),
        ("west", None),
    ]
    assert offer.available


async def test_what_is_not_published_or_on_a_disabled_engine_is_not_offered(client: EngineClient) -> None:
    hidden = an_engine("east", a_model("Withdrawn", published=False), None)
    disabled = an_engine("west", a_model("Linden"), enabled=False)

    found = build(client, hidden, disabled)

    assert found.offers == ()
    assert [engine.name for engine in found.engines] == ["east", "west"]


async def test_a_model_whose_engine_is_away_is_shown_with_its_problem(client: EngineClient) -> None:
    east = an_engine("east", a_model("Linden"))

    (offer,) = build(client, east, away=(east,)).offers

    assert not offer.available
    assert offer.problem == AWAY.problem
    assert offer.endpoints[0].since == AWAY.since


async def test_a_model_the_engine_no_longer_lists_is_shown_with_its_problem(client: EngineClient) -> None:
    east = an_engine("east", a_model("Linden"))
    east.deployments[0].missing_since = now()

    (offer,) = build(client, east).offers

    assert offer.problem == "The engine does not offer this model at the moment."
    assert offer.endpoints[0].since == east.deployments[0].missing_since


async def test_an_earlier_model_of_the_embedded_engine_is_gone(client: EngineClient) -> None:
    embedded = an_engine("This machine", a_model("SmolLM2"), a_model("Mine"), source=Source.EMBEDDED)
    embedded.deployments[0].missing_since = now()

    assert [offer.name for offer in build(client, embedded).offers] == ["Mine"]


async def test_an_offer_is_found_by_its_id(client: EngineClient) -> None:
    linden = a_model("Linden")

    found = build(client, an_engine("east", linden))

    assert found.by_id[linden.id] is found.offers[0]


async def test_admins_see_what_was_found_and_under_which_name(client: EngineClient) -> None:
    linden = a_model("Linden")
    east = an_engine("east", linden, None)
    east.deployments[1].upstream_name = "team/hazel"

    (status,) = build(client, east, away=(east,)).engines

    assert status.health == AWAY
    published, proposed = status.deployments
    assert (published.model_name, published.published) == ("Linden", True)
    assert (proposed.model_id, proposed.published, proposed.proposed_name) == (None, False, "hazel")


async def test_a_model_reads_what_all_of_its_engines_read_and_surely_no_more_than_the_widest(
    client: EngineClient,
) -> None:
    linden = a_model("Linden")
    east, west, silent = (an_engine(name, linden) for name in ("east", "west", "silent"))
    east.deployments[0].context_length, west.deployments[0].context_length = 8_192, 4_096

    (told,) = build(client, east, west).offers
    (partly,) = build(client, east, west, silent).offers
    (unknown,) = build(client, silent).offers

    assert (told.window, told.widest_window) == (4_096, 8_192)
    assert (partly.window, partly.widest_window) == (4_096, None)
    assert (unknown.window, unknown.widest_window) == (None, None)
