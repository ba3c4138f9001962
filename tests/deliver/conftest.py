"""Servers on this machine's loopback: one that takes mail, one that speaks the APIs of GitHub and GitLab."""

from __future__ import annotations

import email
import json
import shutil
import socket
import ssl
import subprocess
import threading
from dataclasses import dataclass, field
from email import policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from render.sample import HOSTILE, sample

USER, PASSWORD = "ann@example.org", "s3cret-pässword"
PDF = b"%PDF-1.7 stand-in"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch):
    """Leave out what the surroundings set: this job may itself be one of a CI."""
    import os

    for name in list(os.environ):
        if name.startswith(("GITHUB_", "CI_", "GITLAB_", "HTAREPORT_", "GH_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def quick_pdf(monkeypatch):
    """A stand-in for the PDF, whose making takes a second."""
    monkeypatch.setattr("htareport.render.pdf.pdf", lambda _report, **_: PDF)


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """The bytes of a saved report."""
    return sample(ranks=2, steps=3, kernels=30).write(tmp_path_factory.mktemp("saved") / "run.json").read_bytes()


@pytest.fixture
def saved(tmp_path, written):
    """A saved report."""
    path = tmp_path / "run.json"
    path.write_bytes(written)
    return path


def hostile():
    """A report with something hostile in every text."""
    import dataclasses

    everything = " ".join(HOSTILE) + "\r\nBcc: eve@example.org\r\n\r\n<b>body</b> @team #12 !13 %14 ~label GH-5"
    report = sample(ranks=2, steps=3, kernels=40)
    sections = tuple(
        dataclasses.replace(
            section,
            title=everything, reason=everything, notes=(everything,),
            facts=tuple(dataclasses.replace(fact, label=everything, detail=everything) for fact in section.facts),
            findings=tuple(dataclasses.replace(each, title=everything, advice=everything) for each in section.findings),
            charts=tuple(dataclasses.replace(each, title=everything, caption=everything) for each in section.charts),
        )
        for section in report.sections
    )  # fmt: skip
    meta = report.meta | dict.fromkeys(("source", "window", "version"), everything)
    meta |= {"software": {everything: everything}, "devices": {everything: 2}}
    return dataclasses.replace(
        report, title=everything, verdict=everything, warnings=(everything,) * 3, sections=sections, meta=meta
    )


@dataclass
class Mailbox:
    """What a mail server received, and what it shall refuse."""

    port: int = 0
    raw: list[bytes] = field(default_factory=list)
    envelopes: list[tuple[str, list[str]]] = field(default_factory=list)
    refuse: dict[str, str] = field(default_factory=dict)
    data_reply: str = "250 OK"

    @property
    def mails(self):
        """All of them, parsed."""
        return [email.message_from_bytes(each, policy=policy.default) for each in self.raw]

    async def handle_RCPT(self, _server, _session, envelope, address, _options):  # noqa: N802  its name in aiosmtpd
        """Take a recipient or refuse it."""
        if address in self.refuse:
            return self.refuse[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server, _session, envelope):  # noqa: N802
        """Keep a mail."""
        if self.data_reply.startswith("250"):
            self.raw.append(envelope.content)
            self.envelopes.append((envelope.mail_from, envelope.rcpt_tos))
        return self.data_reply


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A certificate for this machine, and its key."""
    if not shutil.which("openssl"):
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
               "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
               "-keyout", "key.pem", "-out", "cert.pem"]  # fmt: skip
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def mailbox(monkeypatch, request):
    """Start a mail server: `mailbox(tls="starttls", login=True)` starts it and sets the variables for it."""
    controllers = pytest.importorskip("aiosmtpd.controller", reason="needs aiosmtpd")
    smtp = pytest.importorskip("aiosmtpd.smtp")
    started = []

    def start(*, tls="", login=False, size=30_000_000):
        box = Mailbox(free_port())
        options = {"data_size_limit": size, "server_hostname": "loopback"}
        if tls:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*request.getfixturevalue("certificate"))
            options |= {"tls_context": context, "require_starttls": True} if tls == "starttls" else {}
        if login:

            def allowed(_server, _session, _envelope, _mechanism, data):
                good = (data.login, data.password) == (USER.encode(), PASSWORD.encode())
                return smtp.AuthResult(success=good, handled=False)

            options |= {"authenticator": allowed, "auth_required": True, "auth_require_tls": tls == "starttls"}
        implicit = {"ssl_context": context} if tls == "implicit" else {}
        controller = controllers.Controller(box, hostname="127.0.0.1", port=box.port, **implicit, **options)
        controller.start()
        started.append(controller)
        given = {"HOST": "127.0.0.1", "PORT": str(box.port), "FROM": "Reports <ann@example.org>"}
        given |= {"USER": USER, "PASSWORD": PASSWORD} if login else {}
        for name, value in given.items():
            monkeypatch.setenv(f"HTAREPORT_SMTP_{name}", value)
        return box

    yield start
    for controller in started:
        controller.stop()


class Api:
    """A stand-in for GitHub and GitLab: comments of one pull request, in pages; it notes every request."""

    def __init__(self):
        self.comments = []  # Each with id, body, and whether others may edit it.
        self.requests = []
        self.fail = None  # Status and body for every request.
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    @property
    def url(self):
        """Where it listens."""
        return f"http://127.0.0.1:{self.server.server_port}"

    def stop(self):
        """Close it."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def answer(self, method, path, body):
        """Return status and JSON for a request."""
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if self.fail:
            return self.fail
        if method == "GET":
            size, page = int(query.get("per_page", 20)), int(query.get("page", 1))
            return 200, self.comments[(page - 1) * size : page * size]
        if method == "POST":
            self.comments.append({"id": 1000 + len(self.comments), **body})
            return 201, {**self.comments[-1], "html_url": f"{self.url}/pull/7#c{self.comments[-1]['id']}"}
        found = next(each for each in self.comments if str(each["id"]) == parts.path.rsplit("/", 1)[-1])
        if found.get("locked"):
            return 403, {"message": "Must have admin rights"}
        found |= body
        return 200, {**found, "html_url": f"{self.url}/pull/7#c{found['id']}"}

    def _handler(api):  # noqa: N805  the handler's self is another
        class Handler(BaseHTTPRequestHandler):
            def do(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                api.requests.append((self.command, self.path, dict(self.headers), body))
                status, answer = api.answer(self.command, self.path, body)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                if status in {301, 307}:
                    self.send_header("Location", f"{api.url}/elsewhere")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_PUT = do  # noqa: N815

            def log_message(self, *_):
                pass

        return Handler


@pytest.fixture
def api():
    made = Api()
    yield made
    made.stop()
