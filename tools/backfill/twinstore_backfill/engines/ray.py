"""``ray://host:10001``: a Ray cluster through its client server; ``ray://auto``: that of this host.

Always through the client server: Ray ends a process that is connected directly when its cluster is lost.
"""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from twinstore.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
LOCAL: Final = "127.0.0.1:10001"


class Ray:
    """An engine with one slot for each CPU."""

    def __init__(self, ray: Any) -> None:  # noqa: ANN401  # too large to be in `dev`, so there are no types
        self._ray = ray
        # One for all functions: the cluster stores each that is made remote for as long as we are connected.
        self._run = ray.remote(num_cpus=1, max_retries=0)(run)

    def slots(self) -> int:
        """Return how many CPUs the nodes have now."""
        return int(self._ray.cluster_resources().get("CPU", 0))

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:  # noqa: ANN401  # see Engine
        """Run a function on one CPU."""
        found: Future[T] = Future()
        settled = partial(settle, found, self._ray.exceptions.RayTaskError)
        self._run.remote(function, *arguments).future().add_done_callback(settled)
        return found

    def close(self) -> None:
        """Cancel everything, and leave the cluster as it is."""
        self._ray.shutdown()


def run(function: Callable[..., T], *arguments: object) -> T:
    """Call a function in a worker."""
    return function(*arguments)


def settle(found: Future[T], raised: type[Any], done: Future[T]) -> None:
    """Pass an outcome on; an error as it was raised, without the traceback that Ray adds to its text."""
    error: Any = done.exception()
    with suppress(InvalidStateError):  # it was cancelled
        if error is None:
            found.set_result(done.result())
        else:
            found.set_exception(error.cause if isinstance(error, raised) else error)


def open_ray(address: str, options: Mapping[str, str]) -> Ray:
    """Connect to a cluster.

    Raises:
        ValidationError: there are options.
        ConnectionError: it cannot be reached.
        ModuleNotFoundError: Ray is not installed.
    """
    ray: Any = import_module("ray")
    if options:
        raise ValidationError(
            "--engine ray:// takes the address of a client server, as in ray://host:10001, or ray://auto."
        )
    # What workers print belongs to the log of Ray, not among the lines of a command.
    place = LOCAL if address in {"", "auto"} else address
    ray.init(f"ray://{place}", log_to_driver=False, configure_logging=False)
    return Ray(ray)
