from playwright.async_api import expect
from backend.accounts.models import User
from tests.e2e.conftest import Desk, OpenPage
from tests.fakes.engine import FakeEngine
OUT = "/tmp/helper-u/"
async def test_shots(desk: Desk, engine: FakeEngine, open_page: OpenPage, alice: User) -> None:
    page = desk.page
    await desk.ask("Hello there")
    await page.locator("article.assistant").get_by_role("button", name="Answer in another way").click()
    await page.screenshot(path=OUT + "m1.png")
    phone = await open_page(alice, "/", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    await phone.goto(page.url)
    await phone.locator("article.assistant").first.get_by_role("button", name="Answer in another way").tap()
    await phone.screenshot(path=OUT + "m2.png")
    assert not await phone.evaluate("document.documentElement.scrollWidth > innerWidth")
