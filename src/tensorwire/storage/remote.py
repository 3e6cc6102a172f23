"""Which store keeps the bytes behind a URL."""

from __future__ import annotations

import os

from .urls import Store

PATIENCE = 60.0
"""Seconds for which requests that fail by a fault of the server or the network are tried again."""
_OWN = {
    **dict.fromkeys(("s3", "s3a"), "S3Store"),
    **dict.fromkeys(("gs",), "GCSStore"),
    **dict.fromkeys(("az", "azure", "adl", "abfs", "abfss"), "AzureStore"),
    **dict.fromkeys(("http", "https"), "HTTPStore"),
}
"""Schemes of obstore; all others are left to fsspec."""
_CLOUDS = ("AWS_", "GOOGLE_", "AZURE_", "AZURITE_")
_SETTINGS = (*_CLOUDS, "HOME")
_stores: dict[tuple[object, ...], Store] = {}


def store(url: str) -> Store:
    """The store for a URL, made once for each bucket, and again when the environment's settings are
    others.
    """
    scheme, _, rest = url.partition("://")
    kind = _OWN.get(scheme.lower())
    if kind is None:
        from .fsspec_store import OtherStore

        return OtherStore()
    root = f"{scheme}://{rest.partition('/')[0]}"
    settings = tuple(
        sorted((name, text) for name, text in os.environ.items() if name.startswith(_SETTINGS))
    )
    key = root, PATIENCE, settings
    found = _stores.get(key)
    if found is None:
        from .object_store import ObjectStore

        found = _stores[key] = ObjectStore(kind, root, PATIENCE)
    return found


_taken_over: set[str] = set()


def settings() -> dict[str, str]:
    """The variables of the environment by which stores are found and opened, for workers on other
    machines.

    They may be credentials: send them as data, never in a command line, a log or a message.
    """
    return {name: text for name, text in os.environ.items() if name.startswith(_CLOUDS)}


def take_over(settings: dict[str, str]) -> None:
    """Uses the settings of another process, in place of those taken over before.

    The worker's own others stay.
    """
    for name in _taken_over - settings.keys():
        os.environ.pop(name, None)
    _taken_over.clear()
    _taken_over.update(settings)
    os.environ.update(settings)
