"""Pictures of the page for the docs: every view of a burnish that has just learnt.

``python -m bench.pictures [--url URL] [--out FOLDER]`` writes NAME.png, and live-dark.png. Without ``--url`` it teaches
a burnish of its own by 16 comments, as the demo does, also on a busy machine. Look at the pictures before they are
committed. Health has none, because it names folders of the machine.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from playwright.sync_api import Page, TimeoutError, sync_playwright

from bench.first_hour import learnt
from bench.page.browser import SIZE, chromium_path
from burnish.parts.desktop.demo.halves import HALVES, Name
from burnish.parts.desktop.demo.questions import QUESTIONS
from burnish.parts.desktop.demo.user import User
from tests.support.burnish import running

ROOT = Path(__file__).parents[1]
SETTLED_MS = 1_500
"""Lists arrive and charts are drawn; a stream of events keeps the network from ever being idle."""
LEFT_OUT = "health"
SEED = 0
ASKED_LATER = 6


def main() -> None:
    parser = argparse.ArgumentParser(description="Take a picture of every view of the page.")
    parser.add_argument("--url", help="of a burnish that runs; otherwise one is started and taught")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "page")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with nullcontext(given.url) if given.url else taught() as url:
        take(url, given.out)


@contextmanager
def taught() -> Iterator[str]:
    """Start a burnish and teach it short answers; yield its URL when its version was judged."""
    half = HALVES[Name.COMMENTS]
    with tempfile.TemporaryDirectory(prefix="pictures-") as folder:
        with running(Path(folder)) as burnish, User(burnish.url, half.system) as user:
            questions = random.Random(SEED).sample(QUESTIONS, len(QUESTIONS))
            comments = sum(not good for good in user.teach(half, questions, SEED))
            print(f"{comments} comments; its first version is {learnt(burnish.url)}", flush=True)
            for question in questions[-ASKED_LATER:]:
                user.ask(question)
            yield burnish.url


def take(url: str, out: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path())
        for scheme, ending in (("light", ""), ("dark", "-dark")):
            page = browser.new_page(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
            page.goto(url)
            for view in views(page) if scheme == "light" else ["live"]:
                page.goto(f"{url}/#/{view}")
                if view == "chat":
                    ask_two(page)
                page.wait_for_timeout(SETTLED_MS)
                path = out / f"{view}{ending}.png"
                page.screenshot(path=path)
                print(path)
        browser.close()


def views(page: Page) -> list[str]:
    """Return the names of the views in the navigation."""
    links = page.get_by_role("navigation", name="Views").get_by_role("link")
    links.first.wait_for()
    names = [(link.get_attribute("href") or "").removeprefix("#/") for link in links.all()]
    return [name for name in names if name != LEFT_OUT]


def ask_two(page: Page) -> None:
    """Have the base model answer beside the live version; have two answers of one, if nothing was learnt yet."""
    count = page.get_by_label("How many answers")
    beside = count.get_by_role("option", name="Beside it: Base model")
    try:
        beside.wait_for(state="attached", timeout=SETTLED_MS)
        count.select_option(label="Beside it: Base model")
    except TimeoutError:
        count.select_option("2")
    message = page.get_by_label("Message", exact=True)
    message.fill("Where do penguins live?")
    message.press("Enter")
    page.get_by_role("button", name="Skip").wait_for(timeout=120_000)


if __name__ == "__main__":
    main()
