"""No head of Ray: it answers with the nodes of a file, and that there are no jobs."""

import http.server
import sys
from pathlib import Path

NODES = Path(sys.argv[1]).read_bytes()


class Head(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = NODES if self.path.startswith("/api/v0/nodes") else b"[]"
        # As Ray with tokens: cluster_up checks that nobody gets in without one.
        self.send_response(200 if "Authorization" in self.headers else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", 8265), Head).serve_forever()
