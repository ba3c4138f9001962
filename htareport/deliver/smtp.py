"""Sends mail by SMTP, with TLS and login; server and password come from the environment, not the command line."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import re
import smtplib
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import getaddresses
from typing import Self

from htareport.errors import OutputError, UsageError

PREFIX = "HTAREPORT_SMTP_"
MAX_RECIPIENTS = 100
MAX_BYTES = 20_000_000  # Bytes of a mail as it is sent; common servers take 25 MB at most.
_TIMEOUT = 30.0  # Seconds for each answer.
_SUBMISSION, _IMPLICIT_TLS = 587, 465
_LOGGED_IN = 235
_MAX_PORT = 65535
_MAX_ADDRESS, _MAX_REPLY = 254, 300
_LOCAL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_TLS = ("starttls", "implicit", "off")


@dataclass(frozen=True, slots=True)
class Server:
    """A mail server, the account that sends, and how the connection is encrypted.

    `tls` is one of starttls, implicit, off, or empty: then port 465 means implicit and every other port STARTTLS, which
    a server on this machine alone may lack.
    """

    host: str
    port: int
    sender: Address
    user: str = ""
    password: str = field(default="", repr=False)
    tls: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read HTAREPORT_SMTP_HOST, _PORT, _USER, _PASSWORD, _FROM and _TLS. UsageError says what is wrong."""
        settings = {
            name: environment.get(PREFIX + name, "").strip() for name in ("HOST", "PORT", "USER", "FROM", "TLS")
        }
        password = environment.get(f"{PREFIX}PASSWORD", "")
        if not settings["HOST"]:
            raise UsageError(
                f"{PREFIX}HOST is not set: it names the mail server (further: _PORT, _USER, _PASSWORD, _FROM)"
            )
        if bool(settings["USER"]) != bool(password):
            raise UsageError(f"{PREFIX}USER and {PREFIX}PASSWORD belong together: one of them is not set")
        tls = settings["TLS"].lower()
        if tls and tls not in _TLS:
            raise UsageError(f"{PREFIX}TLS: {settings['TLS']!r} is none of {', '.join(_TLS)}")
        port = settings["PORT"] or str(_IMPLICIT_TLS if tls == "implicit" else _SUBMISSION)
        if not (port.isdecimal() and port.isascii() and 0 < int(port) <= _MAX_PORT):
            raise UsageError(f"{PREFIX}PORT: {port!r} is no port")
        sender = settings["FROM"] or (settings["USER"] if "@" in settings["USER"] else "")
        if not sender:
            raise UsageError(f"{PREFIX}FROM is not set: it is the address that the mail comes from")
        from_ = addresses([sender], f"{PREFIX}FROM")
        if len(from_) != 1:
            raise UsageError(f"{PREFIX}FROM: more than one address")
        return cls(settings["HOST"], int(port), from_[0], settings["USER"], password, tls)


def addresses(texts: Iterable[str], option: str = "--to") -> tuple[Address, ...]:
    """Read `ann@example.org` and `Ann Lee <ann@example.org>`, several by commas. UsageError names what is none."""
    addresses = dict[str, Address]()
    for text in texts:
        if not text.isprintable():
            raise UsageError(f"{option}: {text!r} holds a line end or a control character")
        for name, address in [named for named in getaddresses([text]) if any(named)] or [("", text)]:
            local, _, domain = address.rpartition("@")
            fits = len(address) <= _MAX_ADDRESS and _LOCAL.fullmatch(local) and _DOMAIN.fullmatch(domain)
            if not fits or local.startswith(".") or local.endswith(".") or ".." in local:
                raise UsageError(f"{option}: {address or text!r} is no mail address")
            addresses.setdefault(address.lower(), Address(name, local, domain))
    if not addresses:
        raise UsageError(f"{option}: nobody was named")
    if len(addresses) > MAX_RECIPIENTS:
        raise UsageError(
            f"{option}: {len(addresses)} recipients; at most {MAX_RECIPIENTS} get one mail, a list gets more"
        )
    return tuple(addresses.values())


def check(message: EmailMessage) -> int:
    """Return the size of a mail in bytes. OutputError if no server would take it."""
    size = len(message.as_bytes(policy=SMTP))
    if size > MAX_BYTES:
        raise OutputError(f"the mail has {size:,} bytes; servers take {MAX_BYTES:,} at most")
    return size


def send(server: Server, message: EmailMessage, recipients: Sequence[Address]) -> None:
    """Send a mail. OutputError says who did not get it, and why."""
    size = check(message)
    host = f"{server.host}:{server.port}"
    try:
        with _connected(server) as connection:
            max_bytes = connection.esmtp_features.get("size", "")
            if max_bytes.isdecimal() and 0 < int(max_bytes) < size:
                raise OutputError(f"{host} takes mails of {int(max_bytes):,} bytes at most; this has {size:,}")
            refused = connection.send_message(
                message, server.sender.addr_spec, [recipient.addr_spec for recipient in recipients]
            )
    except (OSError, UnicodeError) as error:  # What smtplib raises is an OSError; a host may be no host name at all.
        raise OutputError(_without_secret(f"{host}: {_reason(error)}", server)) from None
    if refused:
        replies = "; ".join(f"{address}: {_reply(*reply)}" for address, reply in refused.items())
        raise OutputError(_without_secret(f"{host}: the mail went out, but not to {replies}", server))


@contextlib.contextmanager
def _connected(server: Server) -> Iterator[smtplib.SMTP]:
    """Yield a connection that is encrypted, unless it may be plain, and logged in if there is a user."""
    context = ssl.create_default_context()  # Certificates are checked; SSL_CERT_FILE adds an own authority.
    if server.tls == "implicit" or (not server.tls and server.port == _IMPLICIT_TLS):
        client: smtplib.SMTP = smtplib.SMTP_SSL(server.host, server.port, timeout=_TIMEOUT, context=context)
    else:
        client = smtplib.SMTP(server.host, server.port, timeout=_TIMEOUT)
    with client as connection:
        connection.ehlo_or_helo_if_needed()
        if not isinstance(connection, smtplib.SMTP_SSL):
            _start_tls(connection, server, context)
        if server.user:
            _login(connection, server)
        yield connection


def _start_tls(connection: smtplib.SMTP, server: Server, context: ssl.SSLContext) -> None:
    """Encrypt the connection. Without TLS only a server on this machine is used, or one with `tls` off."""
    if server.tls == "off":
        return
    if connection.has_extn("starttls"):
        connection.starttls(context=context)
        connection.ehlo()
    elif server.tls == "starttls" or not _is_local(connection):
        raise OutputError(
            f"{server.host}:{server.port} offers no STARTTLS, so the mail would be readable on its way; "
            f"{PREFIX}TLS=implicit is for servers that begin with TLS, {PREFIX}TLS=off sends it all the same"
        )


def _login(connection: smtplib.SMTP, server: Server) -> None:
    if (server.user + server.password).isascii():
        connection.login(server.user, server.password)
        return
    # smtplib knows ASCII only; PLAIN is UTF-8.
    credentials = base64.b64encode(f"\0{server.user}\0{server.password}".encode())
    status, reply = connection.docmd("AUTH", f"PLAIN {credentials.decode()}")
    if status != _LOGGED_IN:
        raise smtplib.SMTPAuthenticationError(status, reply)


def _is_local(connection: smtplib.SMTP) -> bool:
    """Return whether the server is this machine."""
    peer = connection.sock.getpeername() if connection.sock else ()
    return isinstance(peer, tuple) and bool(peer) and ipaddress.ip_address(str(peer[0]).partition("%")[0]).is_loopback


def _reason(error: Exception) -> str:  # noqa: PLR0911  one for each kind of failure
    """Say in words of the user what went wrong."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "; ".join(f"{address} was refused: {_reply(*reply)}" for address, reply in error.recipients.items())
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return f"the login was refused: {_reply(error.smtp_code, error.smtp_error)}"
    if isinstance(error, smtplib.SMTPSenderRefused):
        return f"the sender {error.sender} was refused: {_reply(error.smtp_code, error.smtp_error)}"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"the mail was refused: {_reply(error.smtp_code, error.smtp_error)}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, TimeoutError) or isinstance(error.__context__, TimeoutError):  # smtplib hides some.
        return f"no answer within {_TIMEOUT:.0f} s"
    if isinstance(error, socket.gaierror):
        return f"there is no such host: {error.strerror}"
    return str(getattr(error, "strerror", None) or error)


def _reply(status: int, text: bytes | str) -> str:
    """Return a server's answer on one line."""
    reply = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return f"{status} {' '.join(reply.split())}"[:_MAX_REPLY]


def _without_secret(text: str, server: Server) -> str:
    """Return a text without the password, which a server may repeat."""
    return text.replace(server.password, "***") if server.password else text
