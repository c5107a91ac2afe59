"""Somebody waits in line, in a real browser."""

from playwright.async_api import expect
from sqlalchemy import update

from backend.accounts.models import Role, User
from backend.engines.models import Model
from tests.conftest import AddPerson, OpenBrowser
from tests.e2e.conftest import Desk
from tests.web.chat.conftest import stream_of


async def test_the_place_in_line_moves_up_then_the_answer_comes(
    desk: Desk, browser: OpenBrowser, bob: User, add_person: AddPerson
) -> None:
    async with desk.site.sessions.begin() as session:
        await session.execute(update(Model).values(max_concurrent=1))
    await desk.site.registry.reload()
    desk.engine.hold()
    model = desk.models["fake-8b"]
    await (await browser(bob)).send("Me first", model=model)
    await desk.engine.until(lambda fake: fake.running == 1)
    second = await browser(await add_person("Dora", Role.MEMBER))
    waits = await second.send("And me", model=model)
    announced = desk.page.locator("#announcer")

    await desk.page.get_by_role("combobox", name="Model").first.select_option(str(model))
    await desk.send("Me, too")
    status = desk.answers.locator(".status.live")
    await expect(status).to_contain_text("You are number 2 in line.")
    await expect(announced).to_have_text("You are number 2 in line.")
    await expect(status.get_by_role("button", name="Stop")).to_be_visible()

    await second.post(stream_of(waits.text).replace("/events", "/stop").partition("?")[0])
    await expect(status).to_contain_text("You are number 1 in line.")
    await expect(announced).to_have_text("You are number 2 in line.")  # said once, for who listens

    desk.engine.release()
    await expect(desk.answers).to_contain_text("You asked: Me, too")
    await expect(desk.answers).not_to_have_attribute("aria-busy", "true")
