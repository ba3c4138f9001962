"""An object store on loopback (moto's S3): what a real protocol does, by the libraries that people use."""

from __future__ import annotations

import logging
import socket

import pytest
from builder import TraceBuilder

from htareport import analyze
from htareport.analyses.time.temporal_breakdown import TemporalBreakdown
from htareport.errors import NothingToReadError, OutputError

s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def store():
    """A bucket with the traces of two ranks below run/."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    started = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*started.get_host_and_port()))
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        s3fs.S3FileSystem.clear_instance_cache()
        made = s3fs.S3FileSystem()
        made.mkdir("bucket")
        yield made
        s3fs.S3FileSystem.clear_instance_cache()
    started.stop()


@pytest.fixture(scope="module")
def folder(store, tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "run"
    for rank in (0, 1):
        trace = TraceBuilder(rank, world_size=2).kernel("gemm", 100, 300 + rank, launch=(20, 5))
        trace.write(path / f"rank{rank}.json", gzip=rank == 1)
    store.put(f"{path}/", "bucket/run/", recursive=True)
    store.touch("bucket/run/")  # Some tools mark folders so.
    return path


def test_there_and_back(cli, folder, store):
    ran = cli("report", "s3://bucket/run", "-o", "s3://bucket/out/r.json", "--only", "temporal_breakdown", "-q")
    assert (ran.status, ran.out, ran.err) == (0, "", "")
    made = analyze(folder, analyses=[TemporalBreakdown()], rules=[]).to_json()
    assert store.cat("bucket/out/r.json") == made
    assert analyze("s3://bucket/run/rank*.json", analyses=[TemporalBreakdown()]).to_json().count(b"gemm") == made.count(
        b"gemm"
    )
    assert cli("diff", "s3://bucket/out/r.json", "s3://bucket/run", "-o", "s3://bucket/out/r.md", "-q").status == 0
    assert store.cat("bucket/out/r.md").startswith(b"# ")


def test_what_is_not_there(folder):
    with pytest.raises(NothingToReadError, match="s3://bucket/none: there is no such file or folder"):
        analyze("s3://bucket/none")
    report = analyze(folder, analyses=[TemporalBreakdown()])
    with pytest.raises(OutputError, match=r"s3://elsewhere/r\.json: The specified bucket does not exist"):
        report.write("s3://elsewhere/r.json")


@pytest.mark.slow
def test_a_store_that_does_not_answer(cli, store, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    s3fs.S3FileSystem.clear_instance_cache()
    ran = cli("report", "s3://bucket/run?sig=abc")
    s3fs.S3FileSystem.clear_instance_cache()
    assert ran.status == 3
    assert "error: s3://bucket/run" in ran.err
    assert "Could not connect" in ran.err
    assert "abc" not in ran.err
