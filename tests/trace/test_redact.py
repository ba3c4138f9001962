"""Secrets in traces: none is in anything that is made of them, whatever field it stood in. All are made up here."""

from __future__ import annotations

import json
import re
import time
import zipfile

import numpy as np
import pytest
from builder import TraceBuilder

from htareport import analyze
from htareport.analyses.kernels.kernel_breakdown import KernelBreakdown
from htareport.analyses.time.annotations import Annotations
from htareport.analyses.time.temporal_breakdown import TemporalBreakdown
from htareport.cli import main
from htareport.reading import secrets
from htareport.reading.redact import redacted_metadata
from htareport.rows.options import ReadOptions
from htareport.trace import RankTrace

REDACT = ReadOptions(redact=True)
HEX, WORD, CAPS = "0123456789abcdef" * 4, "aB3dE5gH7jK9mN2pQ4sT6vX8z" * 3, "A2B4C6D8E0G2H4J6"


def made(*pieces):
    """A secret, put together so that none stands in this file."""
    return "".join(pieces)


def pem(kind=""):
    return made(
        "-----BEGIN ", kind, "PRIVATE", " KEY-----\n", WORD, "\n", WORD, "\n-----END ", kind, "PRIVATE", " KEY-----"
    )


TOKENS = {
    "AWS key id": made("AK", "IA", CAPS),
    "AWS session": made("AS", "IA", CAPS),
    "Google API": made("AI", "za", WORD[:35]),
    "Google OAuth": made("ya", "29.", WORD[:40]),
    "GitHub": made("gh", "p_", WORD[:36]),
    "GitHub, fine-grained": made("github", "_pat_", WORD[:22], "_", WORD[:40]),
    "GitLab": made("gl", "pat-", WORD[:20]),
    "Slack": made("xo", "xb-", "1234567890-", "1234567890-", WORD[:24]),
    "Slack hook": made("https://hooks.", "slack.com/services/T0", CAPS[:8], "/B0", CAPS[:8], "/", WORD[:24]),
    "OpenAI": made("sk", "-proj-", WORD[:48]),
    "Anthropic": made("sk", "-ant-api03-", WORD[:40]),
    "Hugging Face": made("h", "f_", WORD[:34]),
    "NVIDIA": made("nv", "api-", WORD[:60]),
    "Stripe": made("sk", "_live_", WORD[:24]),
    "npm": made("np", "m_", WORD[:36]),
    "PyPI": made("py", "pi-", WORD[:60]),
    "Docker": made("dckr", "_pat_", WORD[:27]),
    "DigitalOcean": made("dop", "_v1_", HEX),
    "Databricks": made("da", "pi", HEX[:32]),
    "SendGrid": made("S", "G.", WORD[:22], ".", WORD[:43]),
    "Vault": made("hv", "s.", WORD[:30]),
    "JWT": made("ey", "J", WORD[:20], ".ey", "J", WORD[:30], ".", WORD[:40]),
    "bearer": made("Authorization: Be", "arer ", WORD[:40]),
    "signed URL": made("https://x.blob.example.com/c?sv=2024&si", "g=", WORD[:40], "%3D"),
    "token of a service": made("WANDB_API", "_KEY=", HEX[:40]),
    "AWS secret": made("aws_secret", "_access_key = ", WORD[:40]),
    "in JSON": made('{"api', '_key": "', WORD[:30], '"}'),
    "session": made("session", "_id=", WORD[:30]),
    "URL with a login": made("postgres://alba", "trosse:", "hunter", "two@db.example.com/x"),
    "URL with a token": made("https://", WORD[:30], "@git.example.com/x"),
    "password": made("pass", "word=", "correcthorse"),
    "quoted password": made("PGPASS", "WORD: 'correct horse battery'"),
    "option": made("train.py --pass", "word hunter22"),
    "private key": pem(),
    "RSA key": pem("RSA "),
    "SSH key": pem("OPENSSH "),
}
SECRET_PARTS = [
    WORD[:20], WORD[10:30], CAPS, HEX[:32], "hunter", "horse", "albatrosse", "kingfisher", "wyvern-n17", "10.1.2.3",
    "correct",
]  # fmt: skip
PERSONAL = {
    "home": "/home/kingfisher/project/train.py(12): step",
    "Mac home": "/Users/kingfisher/train.py",
    "Windows home": r"C:\Users\kingfisher\train.py(3): f",
    "deep home": "/mnt/nfs/vol1/home/kingfisher/x.py",
    "user elsewhere": "/scratch/kingfisher/x.py",
    "mail": "by kingfisher@example.com",
    "login": "kingfisher@wyvern-n17:~/x",
    "host": "rank 3 on wyvern-n17.cluster.example.com",
    "address": "tcp://10.1.2.3:29500",
    "environment": "PATH=/usr/bin:/bin\nHOME=/home/kingfisher\nUSER=kingfisher\nHOSTNAME=wyvern-n17\nX_Y=albatrosse",
    "environment of Python": "environ({'PATH': '/bin', 'USER': 'kingfisher', 'HOST': 'wyvern-n17', 'X': 'albatrosse'})",
}
KEPT = [
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >()",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x",
    "triton_poi_fused_add_mul_0d1d2d3e4f5a6b7c8d9e0f1a2b3c4d5e6f7a8b9c0d1e2f3",
    "forward(password=None, token: str = None, key: Optional[str])", "/usr/lib/python3/threading.py(3): local",
    "tokenizer.py(12): encode", "num_tokens=4096 max_tokens: 2048", "token_embedding: 1", "pass: backward", "k=v a=1",
    "aten::scaled_dot_product_attention", "task-force", "monkey: banana", "compass=north", "Dequeue@Conv2D",
    "memcpy@GLIBC_2.14", "Memcpy HtoD (Pinned -> Device)", "cudnn 8.9.7.29 at 10.2.89.1", "secretary: x",
    "grid=(1, 2) block=(3)", "ns::Home::Users", "~Destructor()", "a::b~c/", "ProfilerStep#12",
]  # fmt: skip


def leaks(text):
    return [part for part in SECRET_PARTS if part in text]


@pytest.mark.parametrize("text", [*TOKENS.values(), *PERSONAL.values()], ids=[*TOKENS, *PERSONAL])
def test_what_is_found(text, load):
    """Alone and within other text; what remains says what it was."""
    builder = TraceBuilder(None, hostname="wyvern-n17.cluster.example.com", user="kingfisher")
    around = ["%s", "step %s done", "f('%s', 3)", "%s\n"]
    for number, words in enumerate(around):
        builder.kernel(words % text, 10 * number, 1)
    trace = load(builder)
    redacted = RankTrace.load(0, next_file(trace, load), options=REDACT)
    for name, clean in zip(trace.device_events["name"], redacted.device_events["name"], strict=True):
        assert leaks(name)
        assert not leaks(clean), clean
        assert re.search(r"\[[a-z ]+\]|~|host·", clean), clean
    assert sum(redacted.loaded.redactions.values()) > len(around)  # With those in the metadata.


def next_file(trace, load):
    """The file that `load` wrote."""
    folder = load.__closure__[0].cell_contents
    return folder / trace.captures[0].name


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept(name, load):
    """Names of kernels, operators and functions that only look a little like a secret."""
    trace = load(TraceBuilder(0).kernel(name, 0, 1))
    redacted = RankTrace.load(0, next_file(trace, load), options=REDACT)
    assert redacted.device_events["name"].tolist() == [name]
    assert redacted.loaded.redactions == {}


def everywhere(secret):
    """A trace that has a text in each of its fields."""
    env = {"PATH": "/usr/bin", "HOME": "/home/kingfisher", "USER": "kingfisher", "X": secret}
    builder = TraceBuilder(
        0, world_size=1, hostname="wyvern-n17", note=secret, user="kingfisher", env=env, argv=["train.py", secret],
        env_list=[f"{name}={value}" for name, value in env.items()], pytorch_version=f"2.3 {secret}",
        config={"password": "albatrosse", "nested": [{"deep": secret}], secret: 1}, with_stack=1,
        deviceProperties=[{"id": 0, "name": f"GPU {secret}"}], traceName=f"/home/kingfisher/{secret}.json",
    )  # fmt: skip
    escaped = json.dumps(secret)[1:-1]  # The builder writes keys as they are.
    builder.metadata["distributedInfo"]["pg_config"][0]["pg_desc"] = secret
    builder.metadata["distributedInfo"]["nccl_version"] = secret
    builder.step(1, 0, 1000).annotation(f"part {secret}", 1, 900).cpu_op(f"op {secret}", 2, 300)
    builder.python_function(f"/home/kingfisher/train.py(3): {secret}", 1, 950)
    builder.kernel(f"kernel {secret}", 100, 50, launch=(10, 5)).kernel("gemm", 160, 50, launch=(20, 5))
    builder.kernel("gemm", 220, 5, launch=(30, 5), launch_name=f"cudaLaunch {secret}")
    builder.collective("ncclDevKernel_AllReduce", secret, 300, 50, launch=(40, 5), group_name=secret, dtype=secret)
    builder.memcpy(f"HtoD {secret}", 400, 20, 4096, 1.0, launch=(50, 5)).memset(440, 5, 64, launch=(60, 5))
    builder.gpu_annotation(f"part {secret}", 100, 300).memory(70, 64, 1).profiler_range("gemm", 160, 50, {escaped: 1.0})
    builder.complete("kernel", "text", 0, 7, (500, 5), {"stream": f"stream {secret}", "device": 0})
    builder.complete("kernel", "odd", f"GPU {secret}", f"stream {secret}", (520, 5), {})
    builder.complete(f"category {secret}", "other", 1, f"thread {secret}", (530, 5), {"x": secret})
    builder.complete(f"of streams {secret}", "other", 1, 7, (540, 5), {"stream": 7})  # Which a warning names.
    builder.complete("cpu_op", "shapes", builder.pid, builder.pid, (600, 5), {"Input Dims": [secret]})
    name = {"name": f"python {secret}", "labels": secret}
    return builder.event({"ph": "M", "name": "process_name", "pid": 1000, "tid": 0, "ts": 0, "args": name})


WRITTEN = ["report.json", "report.md", "report.html", "report.eml", "tables.csv.zip"]


ALL = [*TOKENS.values(), *PERSONAL.values()]


@pytest.mark.parametrize("part", range(3))
def test_no_field_gives_it_away(part, tmp_path):
    """In no section of a report; and what fails does not fail because of it."""
    path = everywhere(" | ".join(ALL[part::3])).write(tmp_path / "rank0.json")
    report = analyze(path)
    text = report.to_json().decode()
    assert not leaks(text), [text[max(0, text.index(part) - 80) : text.index(part) + 80] for part in leaks(text)]
    assert not [section.reason for section in report.sections if section.status == "failed"]


def test_a_warning_gives_nothing_away_but_the_name_of_the_file(tmp_path):
    """Also where no other text holds a secret, and where the file is called as the host is."""
    builder = TraceBuilder(0, hostname="wyvern-n17").kernel("k", 0, 1)
    builder.complete(f"on wyvern-n17 {TOKENS['GitHub']}", "other", 1, 7, (5, 5), {"stream": 7})
    builder.write(tmp_path / "wyvern-n17_1.json")
    TraceBuilder(0, hostname="wyvern-n17", cuda_runtime_version=1).kernel("k", 20, 1).write(
        tmp_path / "wyvern-n17_2.json"
    )
    trace = RankTrace.load(0, sorted(tmp_path.iterdir()), options=REDACT)
    first, second = trace.loaded.warnings
    assert re.fullmatch(
        r"wyvern-n17_1\.json: rows of unknown categories have a stream: on host·\w+ \[token\]; they are .*", first
    )
    assert second.startswith("wyvern-n17_1.json and wyvern-n17_2.json, taken as captures of one rank, have different")


@pytest.mark.parametrize("switch", [(), ("--no-redact",)], ids=["", "--no-redact"])
def test_nothing_written_gives_it_away(switch, tmp_path, capsys, monkeypatch):
    """Whatever the format, and on the terminal; unless asked for. A mail's PDF, which is packed, gets a stand-in."""
    monkeypatch.setattr("htareport.render.pdf.pdf", lambda _report, **_: b"%PDF-")
    secret = TOKENS["GitHub"]
    everywhere(secret).write(tmp_path / "in" / "rank0.json")
    outputs = [part for name in WRITTEN for part in ("-o", str(tmp_path / name))]
    only = ["--only", "annotations,kernel_breakdown,operators,timeline,findings"]  # Each section is looked at above.
    assert main(["report", str(tmp_path / "in"), *outputs, *only, *switch]) == 0
    printed = "".join(capsys.readouterr())
    assert bool(leaks(printed)) is bool(switch)
    assert ("the trace files hold secrets" in printed) is not bool(switch)
    for name in WRITTEN:
        data = (tmp_path / name).read_bytes()
        if name.endswith(".zip"):
            with zipfile.ZipFile(tmp_path / name) as archive:
                data = b"".join(archive.read(member) for member in archive.namelist())
        found = leaks(data.decode())
        assert bool(found) is bool(switch) or (switch and name == "report.eml"), (name, found)


def test_hosts_are_numbered_over_all_ranks(tmp_path):
    """So that ranks of one host can be told: by metadata, or by the names that the profiler gives its files."""
    for rank, host in enumerate(["wyvern-n17", "wyvern-n18.example.com", "wyvern-n17.example.com"]):
        name = f"part on {host.partition('.')[0]}"
        TraceBuilder(rank, 4, hostname=host).annotation(name, 0, 9).kernel("k", 1, 5).write(tmp_path / f"{rank}.json")
    TraceBuilder(3, 4).kernel("k", 1, 5).write(tmp_path / "wyvern-n19_4242.1750000000000000000.pt.trace.json")
    report = analyze(tmp_path, analyses=[Annotations()])
    assert [rank["host"] for rank in report.meta["ranks"]] == ["host-1", "host-2", "host-1", "host-3"]
    names = set(report["annotations"].table()["name"])
    assert names == {"part on host-1", "part on host-2"}
    assert "host·" not in report.to_json().decode()
    assert "wyvern-n19_4242.1750000000000000000.pt.trace.json" in [each["name"] for each in report.meta["files"]]
    kept = analyze(tmp_path, analyses=[], redact=False)
    assert kept.meta["ranks"][1]["host"] == "wyvern-n18.example.com"


def test_names_that_become_the_same_are_one(tmp_path):
    """And everything that is counted by name holds for both together."""
    builder = TraceBuilder(0)
    for number, user in enumerate(("kingfisher", "albatross", "kingfisher")):
        builder.kernel(f"/home/{user}/k.py: k", 10 * number, 5)
    path = builder.write(tmp_path / "a.json")
    trace = RankTrace.load(0, path, options=REDACT)
    assert trace.device_events["name"].tolist() == ["~/k.py: k"] * 3
    table = analyze(path, analyses=[KernelBreakdown()])["kernel_breakdown"].table("kernels")
    assert table["count"].tolist() == [3]


def test_numbers_stay(tmp_path):
    """Redacting changes texts, never a time, a count or an id."""
    path = everywhere(TOKENS["JWT"]).write(tmp_path / "a.json")
    plain, clean = RankTrace.load(0, path), RankTrace.load(0, path, options=REDACT)
    for column in ("ts", "dur", "correlation", "launch", "step", "capture"):
        assert np.array_equal(plain.device_events[column], clean.device_events[column])
    assert len(plain.events) == len(clean.events)
    assert plain.capabilities == clean.capabilities
    assert sorted(plain.loaded.counts.values()) == sorted(clean.loaded.counts.values())


def test_a_trace_without_secrets_is_as_it_was(tmp_path):
    """Nothing is counted, and nothing is different."""
    path = TraceBuilder(0).kernel("gemm", 0, 5, launch=(0, 1)).write(tmp_path / "a.json")
    assert RankTrace.load(0, path, options=REDACT).loaded.redactions == {}
    chosen = [KernelBreakdown(), TemporalBreakdown()]
    assert analyze(path, analyses=chosen).to_json() == analyze(path, analyses=chosen, redact=False).to_json()


def test_metadata_alone():
    """For traces that are written again with their events as they are."""
    meta = {
        "host": "wyvern-n17",
        "env": {"A": "1"},
        "log": "tcp://10.1.2.3:1 and wyvern-n17",
        "user": "kingfisher",
        "n": [1, 2],
    }
    assert redacted_metadata(meta) == {
        "host": "host-1", "env": "[environment]", "log": "tcp://host-2:1 and host-1", "user": "[user]", "n": [1, 2],
    }  # fmt: skip


def test_long_texts_take_no_longer_than_their_size(tmp_path):
    """Texts made to hurt the patterns."""
    pieces = [
        "pass_",
        "a.",
        "/home/",
        "A=",
        "'A': 'b', ",
        "key=",
        "a@",
        "eyJ",
        "-----BEGIN ",
        "--secret ",
        "://",
        "~a",
        "1.",
    ]
    builder = TraceBuilder(0)
    for piece in pieces:
        builder.kernel(piece * (100_000 // len(piece)), 0, 1)
    path, start = builder.write(tmp_path / "a.json"), time.process_time()
    RankTrace.load(0, path, options=REDACT)
    assert time.process_time() - start < 3


def test_every_pattern_has_its_example():
    """None is there that no test is about."""
    everything = "\n".join([*TOKENS.values()])
    unused = [each.regex.pattern for each in secrets.PATTERNS if not each.regex.search(everything)]
    assert len(unused) <= 6, unused  # Services whose tokens are like those of others.
