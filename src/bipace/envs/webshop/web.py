"""The shop as pages in a browser, so that a person can do an agent's task and see the score.

Loopback only, for one person: standard library server, no scripts, every text escaped. The pages play the
very same episodes as an agent does: a button sends `click[...]`, the search field `search[...]`.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from bipace.envs.base import UnknownTask
from bipace.envs.webshop.html import STYLE, render_page
from bipace.envs.webshop.shop import WebShop

if TYPE_CHECKING:
    from bipace.envs.webshop import WebShopSuite

__all__ = ["make_server", "serve"]

MAX_SESSIONS = 256
MAX_BODY = 16_384  # bytes of a form
_COOKIE = "bipace_shop"
_HOSTS = ("127.0.0.1", "localhost")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def serve(suite: WebShopSuite, port: int = 8000) -> None:
    """Serve the shop on 127.0.0.1 until interrupted (Ctrl-C).

    Args:
        suite: the goals and the shop.
        port: 0 takes any free one; the address is printed.

    Raises:
        OSError: the port is taken.
    """
    with make_server(suite, port) as server:
        print(
            f"WebShop ({suite.data_label}): http://127.0.0.1:{server.server_address[1]}/  Ctrl-C ends it",
            flush=True,
        )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def make_server(suite: WebShopSuite, port: int = 0) -> ThreadingHTTPServer:
    """The server, bound to 127.0.0.1 but not yet answering: call `serve_forever`, then `shutdown`."""
    sessions = _Sessions(suite)

    class Handler(_Handler):
        shoppers = sessions

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    return server


@dataclass
class _Session:
    environment: WebShop
    task: str
    steps: int = 0
    note: str = ""


class _Sessions:
    """The shoppers, at most MAX_SESSIONS: the one unseen for longest makes room.

    One lock: a step takes under 1 ms.
    """

    def __init__(self, suite: WebShopSuite) -> None:
        self.suite = suite
        self._open: OrderedDict[str, _Session] = OrderedDict()
        self._lock = threading.Lock()
        self._panel = next(tasks for name, tasks in suite.splits.items() if name.endswith("validation-panel"))

    def page(self, key: str | None) -> tuple[str, str]:
        """The session's key (a new one where it is unknown) and its page."""
        with self._lock:
            key, session = self._find(key)
            place = self._panel.index(session.task) if session.task in self._panel else -1
            page = render_page(
                session.environment,
                task=session.task,
                next_task=self._panel[(place + 1) % len(self._panel)],
                steps=session.steps,
                max_steps=self.suite.max_steps,
                data_label=self.suite.data_label,
                note=session.note,
            )
            return key, page

    def act(self, key: str | None, form: dict[str, str]) -> str:
        """Apply a form: a task to begin, a click or a search. Returns the session's key."""
        with self._lock:
            key, session = self._find(key)
            session.note = ""
            if "task" in form:
                self._begin(session, form["task"].strip())
                return key
            action = f"search[{form['query']}]" if form.get("query") else f"click[{form.get('click', '')}]"
            turn = session.environment.step(action)
            session.steps += 1
            if not turn.valid:
                session.note = "That did nothing."
            return key

    def _begin(self, session: _Session, task: str) -> None:
        try:
            session.environment.reset(task)
        except UnknownTask as error:
            session.note = str(error)
            return
        session.task, session.steps = task, 0

    def _find(self, key: str | None) -> tuple[str, _Session]:
        if key is not None and key in self._open:
            self._open.move_to_end(key)
            return key, self._open[key]
        session = _Session(self.suite.make(), self._panel[0])
        session.environment.reset(session.task)
        key = secrets.token_urlsafe(24)
        self._open[key] = session
        while len(self._open) > MAX_SESSIONS:
            self._open.popitem(last=False)
        return key, session


class _Handler(BaseHTTPRequestHandler):
    shoppers: _Sessions
    timeout = 30
    server_version = "bipace"
    sys_version = ""

    def do_GET(self) -> None:
        if not self._allowed():
            return
        if self.path == "/style.css":
            self._answer(HTTPStatus.OK, STYLE, "text/css")
        elif self.path == "/":
            key, page = self.shoppers.page(self._key())
            self._answer(HTTPStatus.OK, page, "text/html", key)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "There is no such page.", "text/plain")

    def do_POST(self) -> None:
        if not self._allowed():
            return
        form = self._form()
        if form is None:
            self.close_connection = True  # the unread body would be taken for the next request
            self._answer(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "That form has no length, or is too long.", "text/plain"
            )
        elif self.path == "/act":
            key = self.shoppers.act(self._key(), form)
            self._answer(HTTPStatus.SEE_OTHER, "", "text/plain", key, location="/")
        else:
            self._answer(HTTPStatus.NOT_FOUND, "There is no such page.", "text/plain")

    def log_message(self, format: str, *args: object) -> None:
        """Keep the terminal quiet."""

    def _allowed(self) -> bool:
        """Refuse other host names: a page elsewhere could point its own name here and read the answers."""
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if host in _HOSTS:
            return True
        self.close_connection = True
        self._answer(HTTPStatus.FORBIDDEN, "This shop answers on 127.0.0.1 only.", "text/plain")
        return False

    def _key(self) -> str | None:
        try:
            morsel = SimpleCookie(self.headers.get("Cookie", "")).get(_COOKIE)
        except CookieError:
            return None
        return morsel.value if morsel else None

    def _form(self) -> dict[str, str] | None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY:
            return None
        body = self.rfile.read(int(length)).decode("utf-8", "replace")
        try:
            return {name: values[-1] for name, values in parse_qs(body, max_num_fields=8).items()}
        except ValueError:
            return {}

    def _answer(self, status: HTTPStatus, text: str, kind: str, key: str = "", location: str = "") -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if key:
            self.send_header("Set-Cookie", f"{_COOKIE}={key}; Path=/; HttpOnly; SameSite=Strict")
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)
