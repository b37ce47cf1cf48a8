"""Engines lend the processes that work on a job; the ledger alone says what is to be done.

A plug-in is an entry point of the group ``twinstore.engines``. Its name is the scheme of the URL that chooses
it, and it is called with the rest: the address, and the options behind ``?``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast
from urllib.parse import parse_qsl

from twinstore.errors import ConfigurationError, TwinstoreError, ValidationError
from twinstore.plugins.entry_points import brief_error, registrations, single_registration
from twinstore.runtime.secrets import mask_secret_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from twinstore.plugins.entry_points import Registration

__all__ = ["Engine", "open_engine"]

T = TypeVar("T")
GROUP: Final = "twinstore.engines"
KIND: Final = "engine"


class Engine(Protocol):
    """Runs functions in separate processes.

    What it promises is little: a function may run never, late, or twice, even at the same time.
    """

    def slots(self) -> int:
        """Return how many functions it can run at the same time now; it may grow and shrink.

        Raises:
            Exception: the engine is lost. Close it, and open it again.
        """
        ...

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:  # noqa: ANN401  # anything that pickles
        """Run a function of a module in one of its processes. Both arguments and result are pickled.

        The future fails with what the function raises, or with any error if its process or the engine is
        lost. Some engines run the function of a lost process again instead.

        Raises:
            Exception: the engine is lost. Close it, and open it again.
        """
        ...

    def close(self) -> None:
        """Cancel all functions, and close what was opened here; no future stays pending.

        It ends soon, also if the engine is lost. A function that runs may run on. It may be called again.
        """
        ...


def open_engine(url: str) -> Engine:
    """Open the engine that a URL such as ``dask://host:8786`` names.

    Raises:
        ConfigurationError: no such engine is installed, its client library is missing, or it cannot be
            reached.
        ValidationError: the URL or its address cannot be read.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise ValidationError(
            "--engine should be a URL such as processes://4 or dask://host:8786, not "
            f"{mask_secret_url(url)!r}."
        )
    address, _, query = rest.partition("?")
    known = registrations(GROUP, KIND)
    found = [item for item in known if item.key == scheme.casefold()]
    registration = single_registration(found, scheme, known, KIND)
    try:
        plug_in = cast("Callable[[str, Mapping[str, str]], Engine]", registration.point.load())
        return plug_in(address, dict(parse_qsl(query, keep_blank_values=True)))
    except TwinstoreError:
        raise
    except ModuleNotFoundError as error:
        raise _missing(registration, error) from error
    except Exception as error:
        raise registration.error(f"cannot be opened: {mask_secret_url(brief_error(error))}.") from error


def _missing(registration: Registration, error: ModuleNotFoundError) -> ConfigurationError:
    """Return the error of an engine whose client library is not installed; its extra has its name."""
    extra = f"{registration.distribution or 'twinstore'}[{registration.name}]"
    return registration.error(f"needs {error.name}, which is not installed. Run: pip install '{extra}'")
