"""Downloads from a server of our own that speaks as much of the hub's protocol as is needed."""

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MARKER = "<|endoftext|>"
STORIES = "".join(f"Story {i} of a cat and a dog.\n{MARKER}\n" for i in range(90)).encode()
HELD_OUT = f"A held-out story.\n{MARKER}\nAnother one.\n{MARKER}\n".encode()


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's protocol as a download needs: HEAD and GET with ETag, commit, length, ranges."""

    files = {"train.txt": STORIES, "valid.txt": HELD_OUT}  # noqa: RUF012

    def answer(self, body: bool) -> None:
        raw = self.files.get(self.path.rsplit("/", 1)[-1], b"")
        known = raw and self.path.startswith(f"/datasets/own/stories/resolve/{'1' * 40}/")
        begin = int(self.headers.get("Range", "bytes=0-")[6:].split("-")[0])
        self.send_response(404 if not known else 206 if begin else 200)
        self.send_header("X-Repo-Commit", "1" * 40)
        self.send_header("ETag", f'"{hashlib.sha256(raw).hexdigest()}"')
        self.send_header("Content-Length", str(len(raw) - begin))
        self.end_headers()
        if body:
            self.wfile.write(raw[begin:])

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def prepare_from_hub(
    tmp_path: Path, endpoint: str, size: int = len(STORIES)
) -> subprocess.CompletedProcess[str]:
    """`prepare.py --source tinystories --stories 40` in a process of its own, the data set exchanged for a tiny one."""
    code = f"""
import prepare, rostok.text.hub as c
from rostok.errors import run_main
train = c.HubFile("train.txt", {size}, "{hashlib.sha256(STORIES).hexdigest()}")
valid = c.HubFile("valid.txt", {len(HELD_OUT)}, "{hashlib.sha256(HELD_OUT).hexdigest()}")
c.TINYSTORIES = c.HubDataset("own/stories", "{"1" * 40}", train, valid)
words = ["--source", "tinystories", "--stories", "40", "--vocab", "280", "--out", {str(tmp_path / "out")!r}, "--json"]
raise SystemExit(run_main(prepare.main, words))
"""
    env = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    env |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    env.pop("HF_HUB_OFFLINE", None)
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_tinystories_from_a_hub(tmp_path: Path, hub: str) -> None:
    """Downloaded, checked, cut to the first 40 stories, its own validation file used; then once more without a hub."""
    done = prepare_from_hub(tmp_path, hub)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["train"]["texts"], summary["valid"]["texts"], summary["split_by"]) == (40, 2, "given")
    (tmp_path / "out" / "manifest.json").unlink()
    for file in (tmp_path / "out").iterdir():
        file.unlink()
    again = prepare_from_hub(tmp_path, "http://127.0.0.1:9")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["train"] == summary["train"]


def test_wrong_file_from_the_hub_is_refused(tmp_path: Path, hub: str) -> None:
    done = prepare_from_hub(tmp_path, hub, size=len(STORIES) + 1)
    assert done.returncode == 2
    assert f"train.txt has {len(STORIES)} bytes" in done.stderr
    assert "delete it and start again" in done.stderr
    assert not (tmp_path / "out").exists()


def test_offline_is_one_line_at_once(tmp_path: Path) -> None:
    started = time.monotonic()
    done = prepare_from_hub(tmp_path, "http://127.0.0.1:9")
    assert done.returncode == 2
    assert done.stderr.startswith("error: train.txt of own/stories could not be downloaded")
    assert done.stderr.endswith("connect once, or stay offline with --source stories\n")
    assert done.stderr.count("\n") == 1
    assert time.monotonic() - started < 30
