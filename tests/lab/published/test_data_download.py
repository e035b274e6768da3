"""Downloads from a server on this machine: whole, broken off, and not what was promised."""

import dataclasses
import hashlib
import http.server
import threading

import numpy as np
import pytest

from calirare._util.errors import InputError
from calirare.datasets import load_dataset
from calirare_lab.published import catalogue
from calirare_lab.published import download as download_module
from calirare_lab.published.download import RemoteFile, download

CONTENT = np.random.default_rng(0).bytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers by the path: /whole, /cut with half, /other and /longer with something else, /missing with 404."""

    def do_GET(self):
        content, kind = self.server.content, self.path.strip("/")
        self.server.asked.append(self.path)
        if kind == "missing":
            self.send_error(404, "Not Found")
            return
        body = {"other": content[::-1], "longer": content + b"x" * 100_000}.get(kind, content)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if kind == "cut" else body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.asked, running.content = [], CONTENT
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def remote(server, kind, target="raw/file.bin"):
    checksum = hashlib.sha256(server.content).hexdigest()
    return RemoteFile(f"http://127.0.0.1:{server.server_address[1]}/{kind}", target, len(server.content), checksum)


def test_a_file_arrives_whole_with_progress(server, tmp_path):
    seen = []
    path = download(remote(server, "whole"), tmp_path, lambda done, total: seen.append((done, total)))
    assert path == tmp_path / "raw" / "file.bin"
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) > 2
    assert [entry.name for entry in path.parent.iterdir()] == ["file.bin"]


def test_what_is_there_and_whole_is_not_fetched_again(server, tmp_path):
    path = download(remote(server, "whole"), tmp_path)
    download(remote(server, "whole"), tmp_path)
    assert len(server.asked) == 1
    path.write_bytes(CONTENT[:-1])
    assert download(remote(server, "whole"), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("cut", "connection broke at 150,000 of 300,000 bytes.*run it again"),
        ("other", f"must have the sha256 {SHA256[:16]}.., got [0-9a-f]{{16}}..: run it again"),
        ("longer", f"must have the sha256 {SHA256[:16]}.., got [0-9a-f]{{16}}..: run it again"),
    ],
)
def test_what_is_not_the_file_is_refused_and_removed(server, tmp_path, kind, message):
    with pytest.raises(InputError, match=message):
        download(remote(server, kind), tmp_path)
    assert list((tmp_path / "raw").iterdir()) == []


@pytest.mark.slow
def test_a_missing_file_and_a_silent_server_say_where_to_put_it(server, tmp_path):
    by_hand = rf"get http://127.0.0.1:\d+/missing by other means and put it at {tmp_path}/raw/file.bin"
    with pytest.raises(InputError, match=rf"the server answered 404 \(Not Found\) for .*: {by_hand}"):
        download(remote(server, "missing"), tmp_path)
    server.server_close()
    server.shutdown()
    with pytest.raises(InputError, match=rf"127.0.0.1 cannot be reached \(.*refused.*\): {by_hand}"):
        download(remote(server, "missing"), tmp_path)


def test_only_http_is_fetched(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    with pytest.raises(InputError, match="must start with http:// or https://"):
        download(RemoteFile(secret.as_uri(), "f", 1, SHA256), tmp_path)


def test_a_full_disk_is_named(server, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(download_module, "part_file", full)
    with pytest.raises(InputError, match=r"file.bin cannot be written \(No space left on device\): make room"):
        download(remote(server, "whole"), tmp_path)


def test_load_dataset_downloads_into_the_cache(server, tmp_path, monkeypatch):
    """A stand-in for DBLP's archive goes the whole way: not found, downloaded, read, found the next time."""
    import scipy.sparse as sp

    rng = np.random.default_rng(1)
    upper = np.triu(rng.random((400, 400)) < 0.02, 1)
    matrix = sp.csr_matrix((upper | upper.T).astype(np.float32))
    np.savez(
        tmp_path / "remote.npz",
        adj_matrix=np.array(matrix, dtype=object),
        node_attr=np.array(sp.csr_matrix(rng.random((400, 9)).astype(np.float32)), dtype=object),
        node_label=np.arange(400, dtype=np.int32) % 4,
    )
    server.content = (tmp_path / "remote.npz").read_bytes()
    sources = (remote(server, "whole", "graphdata/dblp.npz"),)
    monkeypatch.setitem(catalogue.CATALOGUE, "dblp", dataclasses.replace(catalogue.CATALOGUE["dblp"], sources=sources))
    cache = tmp_path / "cache"
    monkeypatch.setattr(catalogue, "data_roots", lambda root: (cache,))
    monkeypatch.setattr(catalogue, "cache_folder", lambda: cache)
    with pytest.raises(InputError, match=r"not found in .*cache: put dblp.npz.*or add --download"):
        load_dataset("dblp")
    seen = []
    graph = load_dataset("dblp", download=True, progress=lambda done, total: seen.append(done))
    assert seen[-1] == len(server.content)
    assert (graph.n_nodes, graph.minority, graph.feature_normalisation) == (400, 2, "row")
    assert np.array_equal(graph.adjacency.to_dense().numpy(), matrix.toarray())
    assert set(graph.x.values.tolist()) == {1.0}
    load_dataset("dblp")
    assert len(server.asked) == 1


def test_a_data_set_without_a_source_says_so(tmp_path):
    with pytest.raises(InputError, match=r"facebook: no download is known; searched .*: put facebook.npz"):
        load_dataset("facebook", tmp_path, download=True)
