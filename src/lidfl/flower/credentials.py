"""Certificates of a server and keys of nodes, for those who have no certificate authority of their own."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

DAYS = 365
"""For how long a server's certificate is good."""


def make_certificates(folder: Path, hosts: Sequence[str] = ()) -> None:
    """Write ca.crt and ca.key if they are not there, and server.crt and server.key for a server of these names.

    The server is also known as localhost, by which its own processes, and the proxy, reach it.
    """
    ca_key, ca_name = _authority(folder)
    key = ec.generate_private_key(ec.SECP384R1())
    server = _certificate(_name("localhost"), key.public_key(), ca_name)
    names = [_host(name) for name in ("localhost", "127.0.0.1", *hosts)]
    server = server.add_extension(x509.SubjectAlternativeName(names), False)
    (folder / "server.crt").write_bytes(server.sign(ca_key, hashes.SHA384()).public_bytes(Encoding.PEM))
    _write_secret(folder / "server.key", key, PrivateFormat.PKCS8)


def _authority(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Name]:
    """The key and the name of who vouches for the server; kept, so that nodes need no new file one day."""
    name = _name("lidfl federation")
    if (folder / "ca.key").exists():
        key = load_pem_private_key((folder / "ca.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key, name
    key = ec.generate_private_key(ec.SECP384R1())
    ca = _certificate(name, key.public_key(), name, days=3650)
    ca = ca.add_extension(x509.BasicConstraints(True, 0), True)
    (folder / "ca.crt").write_bytes(ca.sign(key, hashes.SHA384()).public_bytes(Encoding.PEM))
    _write_secret(folder / "ca.key", key, PrivateFormat.PKCS8)
    return key, name


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def make_node_key(folder: Path, name: str) -> None:
    """Write a node's private key, and its public key as <name>.pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write_secret(folder / name, key, PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    (folder / f"{name}.pub").write_bytes(public)


def _write_secret(path: Path, key: ec.EllipticCurvePrivateKey, form: PrivateFormat) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, issuer: x509.Name, days: int = DAYS
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(minutes=5),
        not_valid_after=now + timedelta(days=days),
    )
