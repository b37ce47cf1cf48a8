"""``dask://host:8786``: the workers of a Dask cluster.

Dask runs a function again if its worker is lost, as often as its setting ``allowed-failures`` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from twinstore.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Executor, Future

T = TypeVar("T")
# As `Security` calls them. Without them the configuration of Dask decides, also about TLS.
OPTIONS: Final = ("tls_ca_file", "tls_client_cert", "tls_client_key")
ANSWER_SECONDS: Final = 10


class Dask:
    """An engine with one slot for each thread of a worker."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401  # its methods have no types
        self._client = client
        self._executor: Executor = client.get_executor(pure=False, retries=0)

    def slots(self) -> int:
        """Return how many threads the workers have now.

        Raises:
            OSError: the cluster cannot be reached, or does not answer.
        """
        if self._client.status != "running":
            raise ConnectionError("The connection to the Dask cluster is lost.")
        threads: Mapping[str, int] = self._client.nthreads(callback_timeout=ANSWER_SECONDS)
        return sum(threads.values())

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:  # noqa: ANN401  # see Engine
        """Run a function in a worker."""
        return self._executor.submit(function, *arguments)

    def close(self) -> None:
        """Cancel what has not begun, and leave the cluster as it is."""
        self._client.close(timeout=ANSWER_SECONDS)


def open_dask(address: str, options: Mapping[str, str]) -> Dask:
    """Connect to a cluster.

    Raises:
        ValidationError: there is no address, or the options are not those of TLS.
        OSError: it cannot be reached.
    """
    if not address or (options and options.keys() != set(OPTIONS)):
        raise ValidationError(
            "--engine dask:// takes the address of a cluster, as in dask://host:8786. TLS needs all of the "
            f"options {', '.join(OPTIONS)}, as in dask://host:8786?{OPTIONS[0]}=/etc/ca.pem&..."
        )
    # Here, because its import changes how every error of the process is pickled.
    from distributed import Client  # noqa: PLC0415  # see above
    from distributed.security import Security  # noqa: PLC0415  # see above

    security = Security(require_encryption=True, **options) if options else None
    url = f"tls://{address}" if options else address
    return Dask(Client(url, security=security, timeout=ANSWER_SECONDS, set_as_default=False))
