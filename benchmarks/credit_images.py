"""The pictures of the credit page in README: docs/images/credit-overview.png and credit-group.png.

    bipace analyze FILE --out credit.html && python benchmarks/credit_images.py credit.html

The committed ones show the published gpt-4o airline trajectories of tau-bench. Needs playwright and Chromium,
which BIPACE_CHROMIUM names.
"""

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def main() -> None:
    """Take both pictures of the page named on the command line."""
    chromium = os.environ.get("BIPACE_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme="light")
        view.goto(Path(sys.argv[1]).resolve().as_uri())
        view.wait_for_selector("html[data-ready=yes]")
        view.screenshot(path=IMAGES / "credit-overview.png")
        view.locator("#h-groups").scroll_into_view_if_needed()
        view.locator(".show-map").first.click()
        view.locator(".map-box .partings").first.wait_for()
        view.locator(".group").first.screenshot(path=IMAGES / "credit-group.png")
        browser.close()


if __name__ == "__main__":
    main()
