"""How our Kafka clients reach and prove themselves to a broker, from `kafka.*` settings; the clients themselves are made where they are used."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from schemas.errors import ConfigError
from schemas.settings import Kafka, Security


def client_options(kafka: Kafka) -> dict[str, Any]:
    """Keyword arguments that every aiokafka client takes: addresses, protocol, TLS context and SASL credentials.

    Raises:
        ConfigError: a file of `kafka.security` is missing or unusable, or SASL has no user.
    """
    security = kafka.security
    options: dict[str, Any] = {"bootstrap_servers": bootstrap_servers(kafka), "security_protocol": security.protocol}
    context = tls_context(security)
    if context is not None:
        options["ssl_context"] = context
    if security.protocol.startswith("SASL_"):
        if not security.username:
            raise ConfigError("kafka.security.username", f"is empty but protocol is {security.protocol}", "name the user, or choose PLAINTEXT or SSL")
        options |= {"sasl_mechanism": security.mechanism, "sasl_plain_username": security.username, "sasl_plain_password": security.password}
    return options


def bootstrap_servers(kafka: Kafka) -> list[str]:
    """The addresses of `kafka.bootstrap`, one an entry.

    Raises:
        ConfigError: an entry is not host:port.
    """
    servers = [entry.strip() for entry in kafka.bootstrap.split(",") if entry.strip()]
    for server in servers:
        host, _, port = server.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise ConfigError("kafka.bootstrap", f"{server!r} is not host:port", 'write for instance "127.0.0.1:9092"')
    if not servers:
        raise ConfigError("kafka.bootstrap", "names no broker", 'write for instance "127.0.0.1:9092"')
    return servers


def tls_context(security: Security) -> ssl.SSLContext | None:
    """What TLS needs, checked host names included; `None` when the protocol has no TLS.

    Raises:
        ConfigError: a named file is missing or does not hold what it should.
    """
    if "SSL" not in security.protocol:
        return None
    context = ssl.create_default_context()
    if security.cafile:
        _load("kafka.security.cafile", security.cafile, "a PEM file of certificates", lambda path: context.load_verify_locations(cafile=path))
    if security.keyfile and not security.certfile:
        raise ConfigError("kafka.security.certfile", "is empty but keyfile is set", "name the certificate that the key belongs to")
    if security.certfile:
        if security.keyfile:
            _require_file("kafka.security.keyfile", security.keyfile)
        _load(
            "kafka.security.certfile", security.certfile, "a PEM certificate with its key", lambda path: context.load_cert_chain(path, security.keyfile or None)
        )
    return context


def _load(key: str, path: str, what: str, load: Callable[[str], None]) -> None:
    _require_file(key, path)
    try:
        load(path)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(key, f"{path} cannot be used ({error})", f"name {what} that this user may read") from error


def _require_file(key: str, path: str) -> None:
    if not Path(path).is_file():
        raise ConfigError(key, f"{path} is not there", "name an existing PEM file")
