"""Keys and certificates for a federation on one machine, made on the spot."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

VALID = timedelta(days=30)


def make_certificates(folder: Path) -> None:
    """Write ca.crt, server.crt and server.key, for a server on loopback."""
    ca_key, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    ca_name, name = _name("lidfl federation"), _name("localhost")
    ca = _certificate(ca_name, ca_key.public_key(), ca_name).add_extension(x509.BasicConstraints(True, 0), True)
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    server = _certificate(name, key.public_key(), ca_name)
    server = server.add_extension(x509.SubjectAlternativeName(hosts), False)
    (folder / "ca.crt").write_bytes(ca.sign(ca_key, hashes.SHA384()).public_bytes(Encoding.PEM))
    (folder / "server.crt").write_bytes(server.sign(ca_key, hashes.SHA384()).public_bytes(Encoding.PEM))
    _write_secret(folder / "server.key", key, PrivateFormat.PKCS8)


def make_node_key(folder: Path, name: str) -> None:
    """Write a node's private key, and its public key as <name>.pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write_secret(folder / name, key, PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    (folder / f"{name}.pub").write_bytes(public)


def _write_secret(path: Path, key: ec.EllipticCurvePrivateKey, form: PrivateFormat) -> None:
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(subject: x509.Name, key: ec.EllipticCurvePublicKey, issuer: x509.Name) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(minutes=5),
        not_valid_after=now + VALID,
    )
