"""Authorities, and certificates of servers and clients, made by ``openssl`` where the machine has it."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

HOST: Final = "127.0.0.1"
OPENSSL: Final = shutil.which("openssl")
WITHOUT_OPENSSL: Final = "nothing here makes certificates"
KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Certificates:
    """An authority, another one, and certificates that the first has signed."""

    def __init__(self, directory: Path) -> None:
        """Make the authorities."""
        self.directory = directory
        self.authority, self.other = self._authority("ours"), self._authority("other")

    def of_server(self, name: str, *, address: str = f"IP:{HOST}", days: int = 2) -> Path:
        """Return certificate and key of a server in one file."""
        return self._signed(name, f"subjectAltName={address}\n", days, self.authority)

    def of_client(self, name: str, *, days: int = 2, authority: Path | None = None) -> Path:
        """Return certificate and key of a client in one file; the key alone is next to it, as ``.key``."""
        return self._signed(name, "extendedKeyUsage=clientAuth\n", days, authority or self.authority)

    def _signed(self, name: str, extensions: str, days: int, authority: Path) -> Path:
        key, request, extension, signed, whole = (
            self.directory / f"{name}.{suffix}" for suffix in ("key", "csr", "ext", "crt", "pem")
        )
        extension.write_text(extensions)
        self._run("req", *KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        self._run(
            *("x509", "-req", "-in", request, "-out", signed, "-days", str(days), "-extfile", extension),
            *("-CA", authority, "-CAkey", authority.with_suffix(".key")),
        )
        whole.write_bytes(signed.read_bytes() + key.read_bytes())
        return whole

    def _authority(self, name: str) -> Path:
        found, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        self._run("req", "-x509", *KEY, "-keyout", key, "-out", found, "-subj", f"/CN={name}", "-days", "2")
        return found

    def _run(self, *arguments: object) -> None:
        subprocess.run([str(OPENSSL), *map(str, arguments)], check=True, capture_output=True)
