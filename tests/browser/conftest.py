"""Headless Chromium for the tests of our pages."""

import os
import shutil

import pytest

CHROMIUM = os.environ.get("BIPACE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="the browser tests need the package playwright"
    )
    if CHROMIUM is None:
        pytest.skip(
            "no Chromium found: install it (Debian: apt install chromium), or name it in BIPACE_CHROMIUM"
        )
    with playwright.sync_playwright() as driver:
        # Containers have no user namespaces for Chromium's sandbox; only our own pages are opened.
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()
