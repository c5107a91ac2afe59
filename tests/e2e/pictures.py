"""The pictures of the documents, taken from the running product: `make pictures`. Not part of the tests."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from backend.accounts.models import User
from tests.e2e.conftest import OpenPage
from tests.fakes.engine import FakeEngine
from tests.site import Site

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"

QUESTION = (
    "Our three coating quotes differ in price and lead time. Which one should we take? Show me the cost per part."
)
ANSWER = """\
**Take quote B.** It costs a little more than A for each part, but it is there before the assembly begins.

| Quote | Price for 1,200 | Per part | Lead time |
|:--|--:|--:|--:|
| A | 5,040 € | 4.20 € | 31 days |
| B | 5,280 € | 4.40 € | 12 days |
| C | 6,120 € | 5.10 € | 9 days |

The same sum for another quantity:

```python
def per_part(price: float, parts: int) -> str:
    \"\"\"Price of one part, as it is printed on the order.\"\"\"
    return f"{price / parts:.2f} €"
```

Two things the quotes do not say:

1. Whether the masking of the threads is included.
2. What happens when a batch is refused.
"""


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with FakeEngine(models=["Linden 32B", "Hazel 8B"], itl=0.02) as running:
        yield running


async def test_take_the_pictures(open_page: OpenPage, site: Site, alice: User, engine: FakeEngine) -> None:
    await site.until_offered()
    engine.plan(("Gladly.",), ("Of course.",), re.split(r"(?<= )", ANSWER))
    page = await open_page(alice)
    for text in ("Minutes of the Monday round", "Explain error E-14 of the press brake"):
        await page.goto("/")
        await _ask(page, text)
    await page.goto("/")
    await page.screenshot(path=PICTURES / "start.png")
    await _ask(page, QUESTION)
    await page.mouse.move(0, 0)
    await page.screenshot(path=PICTURES / "chat.png")
    await page.emulate_media(color_scheme="dark")
    await page.screenshot(path=PICTURES / "chat-dark.png")
    phone = await open_page(alice, "/", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    await phone.goto(page.url)
    await phone.screenshot(path=PICTURES / "phone.png")
    nobody = await open_page(None, "/login")
    await nobody.screenshot(path=PICTURES / "sign-in.png")


async def _ask(page: Page, text: str) -> None:
    await page.get_by_role("textbox", name="Message", exact=True).fill(text)
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator("article.assistant")).not_to_have_attribute("aria-busy", "true")
    await expect(page.locator("article.assistant .prose")).to_be_visible()
