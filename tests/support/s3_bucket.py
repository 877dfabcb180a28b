"""A bucket of S3 as an HTTP server: it keeps what is put, and can be told to fail."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Bucket:
    """Objects by path, with the headers that they came with. `refused`: a part of the paths at
    which nothing can be put."""

    url: str = ""
    fails: bool = False
    refused: str | None = None
    objects: dict[str, bytes] = field(default_factory=dict)
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    puts: int = 0

    def lines(self) -> list[dict[str, Any]]:
        """The lines of all objects."""
        texts = [gzip.decompress(content).decode() for content in self.objects.values()]
        return [json.loads(line) for text in texts for line in text.splitlines()]


@contextmanager
def serve_bucket() -> Iterator[Bucket]:
    """Serve a bucket for the length of a block."""
    bucket = Bucket()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            is_refused = bucket.refused is not None and bucket.refused in self.path
            is_kept = not (bucket.fails or is_refused)
            if is_kept:
                bucket.puts += 1
                bucket.objects[self.path] = content
                bucket.headers[self.path] = {k.lower(): v for k, v in self.headers.items()}
            self.send_response(200 if is_kept else 403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *said: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    bucket.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield bucket
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
