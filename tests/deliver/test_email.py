"""The mail: its parts, its size, and that nothing in it can act."""

from __future__ import annotations

import email
import io
import re
import sys
from email import policy
from html.parser import HTMLParser

import pytest
from deliver.conftest import PDF, hostile
from render.sample import sample

from htareport.errors import MissingLibraryError, UsageError
from htareport.files.output import encoded, write
from htareport.render.mail import LIMIT, LONGEST_SUBJECT, default_subject, html, mail, plain, subject_line
from htareport.report import Report


def parsed(data):
    return email.message_from_bytes(data, policy=policy.default)


def outline(part):
    """The tree of types."""
    inner = [outline(each) for each in part.iter_parts()] if part.is_multipart() else []
    return (part.get_content_type(), *inner)


class Tags(HTMLParser):
    """Collects elements with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        """Note one."""
        self.found.append((tag, dict(attributes)))


def test_parts_of_a_draft(quick_pdf):
    pytest.importorskip("resvg_py", reason="needs resvg-py")
    message = parsed(encoded(sample(), ".eml"))
    assert outline(message) == (
        "multipart/mixed",
        ("multipart/alternative", ("text/plain",), ("multipart/related", ("text/html",), ("image/png",))),
        ("application/pdf",),
    )
    assert message["Subject"] == "llama-7b, 8 × H100, run 42: training step 264 ms"
    assert message["X-Unsent"] == "1"
    assert message["Date"] is message["From"] is message["To"] is None
    picture = next(part for part in message.walk() if part.get_content_type() == "image/png")
    assert picture.get_content()[:8] == b"\x89PNG\r\n\x1a\n"
    assert 5000 < len(picture.get_content()) < 100_000
    page = message.get_body(("html",)).get_content()
    assert f'src="cid:{picture["Content-ID"][1:-1]}"' in page
    (attached,) = message.iter_attachments()
    assert attached.get_filename() == "llama-7b-8-h100-run-42.pdf"
    assert attached.get_content() == PDF


def test_the_attachment_is_a_pdf():
    try:
        message = parsed(encoded(sample(ranks=2, kernels=20), ".eml"))
    except MissingLibraryError as error:
        pytest.skip(str(error))
    files = [part.get_content() for part in message.iter_attachments()]
    if not files:
        pytest.skip("needs Pango")
    assert files[0].startswith(b"%PDF-")
    assert b"%%EOF" in files[0][-1024:]


def test_both_bodies_have_the_same_numbers(quick_pdf):
    message = parsed(encoded(sample(), ".eml"))
    bodies = [message.get_body((kind,)).get_content().replace("\u202f", "\u00a0") for kind in ("plain", "html")]
    for body in bodies:
        for part in ("231\u00a0ms per step", "264\u00a0ms", "Rank 2 computes 18\u00a0% longer", "up to 33.0\u00a0ms",
                     "NVIDIA H100", "Top kernels", "0.1.0"):  # fmt: skip
            assert part.replace("\u00a0", " ") in " ".join(body.replace("\u00a0", " ").split())


def test_equal_reports_give_equal_bytes_and_lines_end_as_mail_wants(quick_pdf, tmp_path):
    first, second = (write(sample(ranks=2), tmp_path / f"{name}.eml").read_bytes() for name in "ab")
    assert first == second
    assert first.count(b"\n") == first.count(b"\r\n")
    assert max(map(len, first.split(b"\r\n"))) <= 998


def test_a_mail_goes_without_what_is_not_there_and_says_so(monkeypatch, caplog):
    def no_pango(*_, **__):
        raise MissingLibraryError("PDF needs Pango: apt-get install libpango-1.0-0")

    monkeypatch.setattr("htareport.render.pdf.pdf", no_pango)
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    message = parsed(encoded(sample(ranks=2), ".eml"))
    assert outline(message) == ("multipart/alternative", ("text/plain",), ("text/html",))
    for kind in ("plain", "html"):
        body = " ".join(message.get_body((kind,)).get_content().split())
        assert "This mail has no PDF attached: PDF needs Pango" in body
        assert "has no picture" in body
    assert "cid:" not in message.get_body(("html",)).get_content()
    assert "no PDF attached: PDF needs Pango" in caplog.text


def test_hostile_names_are_inert(quick_pdf):
    message = parsed(mail(hostile()).encoded())
    assert message["Bcc"] is None
    assert set(message.keys()) == {"Subject", "MIME-Version", "Content-Type"}
    assert len(message["Subject"]) <= LONGEST_SUBJECT
    tags = Tags(message.get_body(("html",)).get_content()).found
    allowed = {
        "html",
        "head",
        "meta",
        "title",
        "body",
        "table",
        "tr",
        "td",
        "th",
        "p",
        "h1",
        "h2",
        "b",
        "br",
        "span",
        "img",
        "code",
        "strong",
        "em",
    }
    assert {tag for tag, _ in tags} <= allowed
    assert not [name for _, held in tags for name in held if name.startswith("on") or name in {"href", "srcset"}]
    assert all(held["src"].startswith("cid:") for tag, held in tags if tag == "img")
    assert not [held for _, held in tags if "url(" in held.get("style", "")]
    text = message.get_body(("plain",)).get_content().replace("\r\n", "\n")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e\u2066]", text)
    assert max(map(len, text.splitlines())) <= 200


def test_the_body_stays_under_what_is_shown(quick_pdf):
    long = "<&\"' 核" * 20_000
    report = sample(ranks=64, kernels=400)
    grown = Report(long, long, {"software": {long: long}}, (long,) * 50, report.sections)
    for one in (report, grown, hostile()):
        assert len(html(one, "x@y").encode()) <= LIMIT
        assert len(plain(one).encode()) <= LIMIT


def test_reports_of_little():
    for report in (Report(""), Report("a\udc80b", "v\udc80"), sample(ranks=1, steps=1, kernels=0)):
        assert "htareport" in html(report, "")
        assert plain(report)
        assert default_subject(report)


@pytest.mark.parametrize("text", ["", "  ", "a\nb", "a\r\nBcc: x@y.z", "a\u2028b", "tab\tbed", "x" * 201, "\u202eabc"])
def test_subjects_that_are_none(text):
    with pytest.raises(UsageError, match="--subject"):
        subject_line(text)


def test_the_picture_is_what_it_says(quick_pdf):
    pytest.importorskip("resvg_py", reason="needs resvg-py")
    images = pytest.importorskip("PIL.Image", reason="needs Pillow")
    message = parsed(encoded(sample(ranks=2), ".eml"))
    data = next(part for part in message.walk() if part.get_content_type() == "image/png").get_content()
    with images.open(io.BytesIO(data)) as image:
        assert image.width == 1240
