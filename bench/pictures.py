"""Pictures of the page for the docs: every view of a burnish that runs and has something to show.

``python -m bench.pictures [--url URL] [--out FOLDER]`` writes NAME.png and NAME-dark.png. Look at them before they are
committed: a picture of Health names folders of the machine.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
SIZE = {"width": 1280, "height": 800}
SETTLED_MS = 1_500
"""Lists arrive and charts are drawn; a stream of events keeps the network from ever being idle."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Take a picture of every view of the page.")
    parser.add_argument("--url", default="http://127.0.0.1:8787")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "page")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found = subprocess.run([ROOT / "scripts/browser"], capture_output=True, text=True, check=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found.stdout.strip())
        for scheme, ending in (("light", ""), ("dark", "-dark")):
            page = browser.new_page(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
            page.goto(given.url)
            for view in views(page):
                page.goto(f"{given.url}/{view}")
                page.wait_for_timeout(SETTLED_MS)
                path = given.out / f"{view.removeprefix('#/')}{ending}.png"
                page.screenshot(path=path)
                print(path)
        browser.close()


def views(page: Page) -> list[str]:
    """Return the addresses in the navigation."""
    links = page.get_by_role("navigation", name="Views").get_by_role("link")
    links.first.wait_for()
    return [link.get_attribute("href") or "" for link in links.all()]


if __name__ == "__main__":
    main()
