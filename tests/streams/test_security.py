"""Tests for `streams.security`: what Kafka clients are told, and what is refused before they start."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from schemas.errors import ConfigError
from schemas.settings import Kafka, Security
from streams.security import client_options


def test_open_broker_needs_addresses_alone() -> None:
    """Without security the clients get the servers and the protocol."""
    assert client_options(Kafka(bootstrap="a:1, b:2")) == {"bootstrap_servers": ["a:1", "b:2"], "security_protocol": "PLAINTEXT"}


def test_tls_checks_the_brokers_name() -> None:
    """TLS without a CA file trusts the system's authorities and checks host names."""
    context = client_options(Kafka(security=Security(protocol="SSL")))["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_sasl_carries_the_user() -> None:
    """SASL passes mechanism, user and password on, with TLS when the protocol says so."""
    options = client_options(Kafka(security=Security(protocol="SASL_SSL", mechanism="SCRAM-SHA-512", username="ann", password="s3cret")))
    assert {key: options[key] for key in options if key.startswith("sasl")} == {
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ann",
        "sasl_plain_password": "s3cret",
    }
    assert "ssl_context" in options


@pytest.mark.parametrize(
    ("security", "key"),
    [
        (Security(protocol="SSL", cafile="/no/such.pem"), "kafka.security.cafile"),
        (Security(protocol="SSL", certfile="/no/such.pem"), "kafka.security.certfile"),
        (Security(protocol="SSL", keyfile="/no/such.pem"), "kafka.security.certfile"),
        (Security(protocol="SASL_PLAINTEXT"), "kafka.security.username"),
    ],
)
def test_missing_parts_name_their_key(security: Security, key: str) -> None:
    """What cannot work is refused with the key to change, before any connection."""
    with pytest.raises(ConfigError) as caught:
        client_options(Kafka(security=security))
    assert caught.value.key == key


def test_file_that_is_no_certificate_names_its_key(tmp_path: Path) -> None:
    """A file of the wrong kind is a wrong setting, not a TLS traceback."""
    file = tmp_path / "ca.pem"
    file.write_text("not a certificate")
    with pytest.raises(ConfigError) as caught:
        client_options(Kafka(security=Security(protocol="SSL", cafile=str(file))))
    assert caught.value.key == "kafka.security.cafile"


@pytest.mark.parametrize("bootstrap", ["localhost", "host:", ":9092", "host:port", "host:0", "host:70000", ",", "a:1,b"])
def test_wrong_address_names_its_key(bootstrap: str) -> None:
    """An address that is not host:port is refused."""
    with pytest.raises(ConfigError, match=r"^kafka\.bootstrap: "):
        client_options(Kafka(bootstrap=bootstrap))
