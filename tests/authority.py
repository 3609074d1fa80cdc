"""A certificate authority of the tests' own, and files of what it signs.

The libraries are loaded late: they take a while, and only tests of TLS need them.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Files:
    """A certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates, and writes them into `folder`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        import trustme

        self._folder = folder
        self._ca = trustme.CA(organization_name=name)
        self.ca = folder / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.ca))

    def sign(self, name: str, *hosts: str, lives: timedelta = timedelta(days=90)) -> Files:
        """Files `name`.pem and `name`.key for `hosts`; the certificate ends after `lives`."""
        signed = self._ca.issue_cert(
            *(hosts or ("localhost", "127.0.0.1")),
            not_before=datetime.now(UTC) - timedelta(days=400),
            not_after=datetime.now(UTC) + lives,
        )
        files = Files(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        files.cert.write_bytes(b"".join(blob.bytes() for blob in signed.cert_chain_pems))
        files.key.write_bytes(signed.private_key_pem.bytes())
        return files


def signed_by_itself(begin: datetime, end: datetime) -> str:
    """A certificate in PEM form that is valid between these."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x" * 60)])
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, begin, end)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def write_rsa_key(file: Path) -> None:
    """A key of another kind than those that an `Authority` makes."""
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = rsa.generate_private_key(65537, 2048)
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def encrypted(key: Path) -> Path:
    """A copy of `key` that needs a password."""
    from cryptography.hazmat.primitives import serialization

    private = serialization.load_pem_private_key(key.read_bytes(), None)
    copy = key.with_suffix(".encrypted")
    copy.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"a password"),
        )
    )
    return copy
