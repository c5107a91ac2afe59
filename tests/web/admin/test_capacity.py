"""Administration: how many people fit into a GPU."""

from html import unescape

import pytest

from backend.accounts.models import User
from tests.conftest import OpenBrowser
from tests.site import Browser, Site
from tests.web.accounts.conftest import text_of, value_of


@pytest.fixture
async def page(browser: OpenBrowser, carol: User, site: Site) -> Browser:
    await site.until_offered("fake-8b")
    return await browser(carol)


async def test_it_answers_at_once_and_every_what_if_has_an_address(page: Browser) -> None:
    shown = await page.get("/admin/capacity")
    before = text_of(shown)
    link = unescape(shown.text.split("2 such GPUs")[0].rpartition('href="')[2].partition('"')[0])
    changed = await page.get(link)

    assert "4 people with conversations of 8,192 tokens fit at the same time." in before
    assert "2 such GPUs 24 people" in before
    assert value_of(changed, "gpus") == "2"
    assert "24 people with conversations of 8,192 tokens fit at the same time." in text_of(changed)


async def test_a_known_model_fills_in_its_shape_and_keeps_the_rest(page: Browser) -> None:
    shown = await page.get("/admin/capacity", params={"vram": "80", "gpus": "2", "weights": "fp8"})
    link = unescape(shown.text.split(">Llama 3.3 70B")[0].rpartition('href="')[2].partition('"')[0])

    filled = await page.get(link)

    assert (value_of(filled, "layers"), value_of(filled, "vram")) == ("80", "80")
    assert '<option value="fp8" selected>' in filled.text


async def test_what_is_no_number_is_told_with_what_was_typed(page: Browser) -> None:
    typed = {"layers": "some", "vram": "nan", "share": '"><b>', "context": "٣"}
    shown = await page.get("/admin/capacity", params=typed)

    assert shown.status_code == 422
    assert text_of(shown).count("A number from ") == 4
    assert value_of(shown, "share") == '"><b>'
    assert "What fits" not in text_of(shown)


async def test_a_model_that_does_not_fit_is_said(page: Browser) -> None:
    shown = await page.get("/admin/capacity", params={"vram": "8,5"})

    assert "It does not fit: 9.6 GiB of memory are missing" in text_of(shown)


async def test_a_running_engine_is_asked_only_when_one_wants_to_know(page: Browser, site: Site) -> None:
    (status,) = site.registry.engines
    shown = await page.get("/admin/capacity")
    asked = await page.get("/admin/capacity", params={"engine": str(status.id)})
    unknown = await page.get("/admin/capacity", params={"engine": str(status.id)[:-4] + "0000"})

    assert f'href="/admin/capacity?engine={status.id}"' in shown.text
    assert "It has room for 93,184 tokens: 11 people with conversations of 8,192 tokens." in text_of(asked)
    assert "There is no such engine in service." in text_of(unknown)
