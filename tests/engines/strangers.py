"""What may stand at an address where an engine should be."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def nobody() -> str:
    """An address whose port is closed."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return _url(closed)


@contextmanager
def silent() -> Iterator[str]:
    """Takes connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        yield _url(listener)


@contextmanager
def full() -> Iterator[str]:
    """Drops requests to connect, as a firewall does: the line of its listener is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        yield _url(listener)
        for each in waiting:
            each.close()


class WebServer:
    """Answers everything with one page, or sends everybody elsewhere, and remembers what it was asked."""

    def __init__(self, page: bytes = b"<html>Sign in</html>", kind: str = "text/html", *, elsewhere: str = "") -> None:
        self.asked: list[str] = []
        self._page, self._kind, self._elsewhere = page, kind, elsewhere

    @contextmanager
    def running(self) -> Iterator[str]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                self.send_response(302 if outer._elsewhere else 200)
                if outer._elsewhere:
                    self.send_header("Location", outer._elsewhere)
                self.send_header("Content-Type", outer._kind)
                self.send_header("Content-Length", str(len(outer._page)))
                self.end_headers()
                self.wfile.write(outer._page)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def log_message(self, *_words: object) -> None:
                """Into no test's output."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            yield f"http://127.0.0.1:{server.server_address[1]}"
            server.shutdown()
            thread.join()


def _url(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"
