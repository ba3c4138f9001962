"""`htareport send` to a real SMTP server on loopback."""

from __future__ import annotations

import socket

import pytest
from builder import TraceBuilder
from deliver.conftest import PASSWORD, PDF, USER, free_port

from htareport.deliver.smtp import Server, addresses
from htareport.errors import UsageError

pytestmark = [
    pytest.mark.usefixtures("quick_pdf"),
    pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS:UserWarning"),  # aiosmtpd's own.
]


@pytest.mark.parametrize("login", [False, True], ids=["anonymous", "login"])
@pytest.mark.parametrize("tls", ["", "starttls", "implicit"], ids=["plain", "starttls", "implicit"])
def test_mail_arrives(cli, mailbox, saved, monkeypatch, request, tls, login):
    box = mailbox(tls=tls, login=login)
    if tls:
        monkeypatch.setenv("SSL_CERT_FILE", str(request.getfixturevalue("certificate")[0]))
        monkeypatch.setenv("HTAREPORT_SMTP_TLS", tls)
    ran = cli("send", saved, "--to", "Bob Ray <bob@example.org>, eve@example.org", "--to", "bob@example.org")
    assert (ran.status, ran.err.count("error")) == (0, 0), ran.err
    assert ran.out.startswith("sent to bob@example.org, eve@example.org")
    assert box.envelopes == [("ann@example.org", ["bob@example.org", "eve@example.org"])]
    (mail,) = box.mails
    assert mail["From"] == "Reports <ann@example.org>"
    assert mail["To"] == "Bob Ray <bob@example.org>, eve@example.org"
    assert mail["Date"].datetime.tzinfo
    assert mail["Message-ID"].endswith("@htareport>")
    assert mail["X-Unsent"] is None
    assert [part.get_content() for part in mail.iter_attachments()] == [PDF]
    assert "267\u202fms" in mail.get_body(("html",)).get_content()
    assert PASSWORD not in ran.out + ran.err


def test_traces_are_read_and_sent(cli, mailbox, tmp_path):
    trace = TraceBuilder(0).step(0, 0, 900).kernel("gemm", 100, 300, launch=(20, 5))
    trace.write(tmp_path / "traces" / "rank0.json")
    box = mailbox()
    ran = cli("send", tmp_path / "traces", "--to", "a@b.org", "--subject", "Nightly – grün", "--title", "T", "-j", "1")
    assert ran.status == 0, ran.err
    assert box.mails[0]["Subject"] == "Nightly – grün"
    assert "900" in box.mails[0].get_body(("plain",)).get_content()
    (tmp_path / "traces" / "rank2.json").write_text('{"traceEvents": [{"ph":')
    assert cli("send", tmp_path / "traces", "--to", "a@b.org", "-j", "1").status == 4
    assert cli("send", tmp_path / "traces", "--to", "a@b.org", "-j", "1", "--allow-partial", "-q").status == 0
    assert len(box.mails) == 3


def kept(ran, tmp_path, name="report.eml"):
    """The mail was not delivered, is kept, and both is said."""
    assert ran.status == 5
    assert f"the mail is kept in {name}" in ran.err
    assert b"Subject: " in (tmp_path / name).read_bytes()
    assert "Traceback" not in ran.err
    assert PASSWORD not in ran.err + ran.out
    return ran.err


def test_nobody_answers(cli, saved, tmp_path, monkeypatch):
    for name, value in {"HOST": "127.0.0.1", "PORT": str(free_port()), "FROM": "a@b.org"}.items():
        monkeypatch.setenv(f"HTAREPORT_SMTP_{name}", value)
    assert "refused" in kept(cli("send", saved, "--to", "x@y.org"), tmp_path)
    kept(cli("send", saved, "--to", "x@y.org"), tmp_path, "report-2.eml")
    kept(cli("send", saved, "--to", "x@y.org", "-o", "mine.eml"), tmp_path, "mine.eml")
    assert not (tmp_path / "report-3.eml").exists()


def test_somebody_answers_nothing(cli, saved, tmp_path, monkeypatch):
    monkeypatch.setattr("htareport.deliver.smtp._TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for name, value in {"HOST": "127.0.0.1", "PORT": str(silent.getsockname()[1]), "FROM": "a@b.org"}.items():
            monkeypatch.setenv(f"HTAREPORT_SMTP_{name}", value)
        assert "no answer within" in kept(cli("send", saved, "--to", "x@y.org"), tmp_path)


def test_wrong_password(cli, mailbox, saved, tmp_path, monkeypatch):
    box = mailbox(login=True)
    monkeypatch.setenv("HTAREPORT_SMTP_PASSWORD", "wrong-one")
    said = kept(cli("send", saved, "--to", "x@y.org"), tmp_path)
    assert "login was refused: 535" in said
    assert "wrong-one" not in said
    assert not box.raw


def test_untrusted_certificate(cli, mailbox, saved, tmp_path):
    box = mailbox(tls="starttls")
    assert "certificate is not trusted" in kept(cli("send", saved, "--to", "x@y.org"), tmp_path)
    assert not box.raw


def test_tls_that_was_asked_for_is_needed(cli, mailbox, saved, tmp_path, monkeypatch):
    box = mailbox()
    monkeypatch.setenv("HTAREPORT_SMTP_TLS", "starttls")
    assert "offers no STARTTLS" in kept(cli("send", saved, "--to", "x@y.org"), tmp_path)
    monkeypatch.setenv("HTAREPORT_SMTP_TLS", "")
    monkeypatch.setattr("htareport.deliver.smtp._is_local", lambda _: False)
    assert "HTAREPORT_SMTP_TLS=off" in kept(cli("send", saved, "--to", "x@y.org"), tmp_path, "report-2.eml")
    monkeypatch.setenv("HTAREPORT_SMTP_TLS", "off")
    assert cli("send", saved, "--to", "x@y.org").status == 0
    assert len(box.raw) == 1


def test_refused_recipients_are_named(cli, mailbox, saved, tmp_path):
    box = mailbox()
    box.refuse = {"gone@y.org": "550 no such user"}
    assert "gone@y.org was refused: 550 no such user" in kept(cli("send", saved, "--to", "gone@y.org"), tmp_path)
    said = kept(cli("send", saved, "--to", "gone@y.org,x@y.org"), tmp_path, "report-2.eml")
    assert "not to gone@y.org: 550" in said
    assert box.envelopes == [("ann@example.org", ["x@y.org"])]
    box.data_reply = f"554 spam, said {PASSWORD}"
    assert "the mail was refused: 554 spam" in cli("send", saved, "--to", "x@y.org").err


def test_too_large_for_the_server_and_for_any(cli, mailbox, saved, tmp_path, monkeypatch):
    box = mailbox(size=10_000)
    assert "takes mails of 10,000 bytes at most" in kept(cli("send", saved, "--to", "x@y.org"), tmp_path)
    monkeypatch.setattr("htareport.deliver.smtp.MAX_BYTES", 5_000)
    monkeypatch.setenv("HTAREPORT_SMTP_PORT", str(free_port()))  # It is not even called.
    assert "servers take 5,000 at most" in kept(cli("send", saved, "--to", "x@y.org"), tmp_path, "report-2.eml")
    assert not box.raw


@pytest.mark.parametrize(
    "wrong",
    ["", "bob", "bob@", "@y.org", "a b@y.org", "bob@y.org\r\nBcc: eve@x.org", "bob@-y.org", "a..b@y.org",
     "b\u00f6b@y.org", "<script>@y.org", "bob@y.org, nobody", ","],
)  # fmt: skip
def test_recipients_are_checked_before_anything_is_read(cli, wrong, monkeypatch):
    monkeypatch.setenv("HTAREPORT_SMTP_HOST", "127.0.0.1")
    ran = cli("send", "no-such-file.json", "--to", wrong)
    assert ran.status == 2
    assert "--to" in ran.err


def test_too_many_recipients():
    with pytest.raises(UsageError, match="101 recipients"):
        addresses([f"a{i}@b.org" for i in range(101)])


def test_wrong_subject_and_output(cli, saved, mailbox):
    mailbox()
    assert cli("send", saved, "--to", "a@b.org", "--subject", "a\r\nBcc: eve@b.org").status == 2
    assert cli("send", saved, "--to", "a@b.org", "-o", "mail.txt").status == 2
    assert cli("send", saved, "--to", "a@b.org", "-o", "no/mail.eml").status == 5
    assert cli("send", saved, "--to", "a@b.org", "--ranks", "0").status == 2


GOOD = {"HOST": "mail.example.org", "FROM": "a@b.org"}


@pytest.mark.parametrize(
    ("given", "said"),
    [({"HOST": ""}, "HOST is not set"), ({"PORT": "x"}, "PORT"), ({"PORT": "99999"}, "PORT"), ({"FROM": ""}, "FROM"),
     ({"FROM": "x"}, "FROM"), ({"FROM": "a@b.org\nBcc: c@d.org"}, "FROM"), ({"USER": "u"}, "belong together"),
     ({"PASSWORD": "p"}, "belong together"), ({"TLS": "maybe"}, "TLS"), ({"FROM": "a@b.org, c@d.org"}, "FROM")],
)  # fmt: skip
def test_the_environment_is_checked(given, said):
    with pytest.raises(UsageError, match=said):
        Server.from_environment({f"HTAREPORT_SMTP_{name}": value for name, value in (GOOD | given).items()})


def test_what_the_environment_leaves_out():
    def read(**given):
        return Server.from_environment({f"HTAREPORT_SMTP_{name}": value for name, value in (GOOD | given).items()})

    assert (read().port, read(TLS="implicit").port, read(PORT="465").port) == (587, 465, 465)
    assert read(FROM="", USER=USER, PASSWORD=PASSWORD).sender.addr_spec == USER
    assert PASSWORD not in repr(read(USER=USER, PASSWORD=PASSWORD))
