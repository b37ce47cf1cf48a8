"""What a driver says of itself and what its factory returns, checked where the author can still be told."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, cast

from twinstore.backend import BackendSettings, BackendSpec, ModuleBackend
from twinstore.errors import ConfigurationError, TwinstoreError
from twinstore.forgetting import without_locals

if TYPE_CHECKING:
    from twinstore.backend import OpenRequest

__all__ = ["opened", "refuse_patched_threads", "spec_problem"]

# Libraries that replace threads by greenlets: the module and its function that says so, and of what.
GREEN: Final = (
    ("gevent", "gevent.monkey", "is_module_patched", "threading"),
    ("eventlet", "eventlet.patcher", "is_monkey_patched", "thread"),
)


def refuse_patched_threads() -> None:
    """Refuse a process whose threads are greenlets.

    Raises:
        ConfigurationError: gevent or eventlet has patched ``threading``.
    """
    for library, module, function, name in GREEN:
        is_patched: Callable[[str], bool] | None = getattr(sys.modules.get(module), function, None)
        if is_patched is not None and is_patched(name):
            raise ConfigurationError(
                f"{library} has patched threading in this process, and twinstore needs threads of the "
                f"operating system: start it without the patches of {library}."
            )


def spec_problem(spec: BackendSpec) -> str | None:
    """Return which field of a description is of another type than it should be; ``None`` for none."""
    for name, (wanted, holds) in FIELDS.items():
        value: object = getattr(spec, name)
        if not holds(value):
            return f"describes itself wrongly: {name} should be {wanted}, not {_shown(value)}"
    return None


@without_locals
def opened(spec: BackendSpec, request: OpenRequest) -> ModuleBackend[object]:
    """Return what the factory of a driver makes.

    Raises:
        ConfigurationError: it fails, returns something that is not a backend, or threads are patched.
    """
    refuse_patched_threads()
    try:
        backend = spec.factory(request)
    # It already says which setting is wrong; wrapped it would say only that something is.
    except TwinstoreError:
        raise
    # SystemExit too: a driver that exits must not end the host.
    except (Exception, SystemExit) as error:
        # Its text may repeat the settings, which hold secrets; the cause has it.
        raise ConfigurationError(
            f"The factory of the driver {spec.name} failed with {type(error).__name__}; see the cause, and "
            "ask its author. It must not connect yet, and raise errors of twinstore only.",
            module=request.module.name,
            driver=spec.name,
        ) from error
    missing = [name for name in BACKEND_NAMES if not _has(backend, name)]
    if missing:
        raise ConfigurationError(
            f"The factory of the driver {spec.name} returned {type(backend).__name__}, which is not a "
            f"ModuleBackend: it lacks {', '.join(missing)}. Ask its author.",
            module=request.module.name,
            driver=spec.name,
        )
    return backend


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_texts(value: object) -> bool:
    return isinstance(value, tuple) and all(map(_is_text, cast("tuple[object, ...]", value)))


def _are_modules(value: object) -> bool:
    return isinstance(value, frozenset) and all(map(_is_text, cast("frozenset[object]", value)))


def _takes_a_request(value: object) -> bool:
    """Whether a function can be called with one argument; what hides its parameters is believed."""
    if not callable(value):
        return False
    try:
        inspect.signature(value).bind(None)
    except TypeError:
        return False
    # A function written in C may tell no signature.
    except ValueError:
        return True
    return True


def _has(backend: object, name: str) -> bool:
    """Whether an object has a name, without asking its properties, which may connect."""
    return inspect.getattr_static(backend, name, None) is not None


def _shown(value: object) -> str:
    """Return a value as a message shows it."""
    return repr(cast("object", value)) if isinstance(value, (str, tuple, list, set)) else str(value)


FIELDS: Final[Mapping[str, tuple[str, Callable[[object], bool]]]] = {
    "name": ("a text", _is_text),
    "api_version": ("a whole number", lambda value: type(value) is int),
    "schemes": ("a tuple of one or more texts", lambda value: _are_texts(value) and bool(value)),
    "settings": (
        "a class that inherits BackendSettings",
        lambda value: isinstance(value, type) and issubclass(value, BackendSettings),
    ),
    "factory": ("a function of one argument, the OpenRequest", _takes_a_request),
    "extra": ("a text", _is_text),
    "requires": ("a tuple of texts", _are_texts),
    "modules": (
        "None or a frozenset of texts",
        lambda value: value is None or _are_modules(value),
    ),
    "draft": ("None or a function", lambda value: value is None or callable(value)),
    "planter": ("None or a function", lambda value: value is None or callable(value)),
}
BACKEND_NAMES: Final = sorted(name for name in vars(ModuleBackend) if not name.startswith("_"))
