"""The store for a URL: obstore for buckets and web servers, fsspec for all other schemes."""

from __future__ import annotations

import os

from .urls import Store

PATIENCE = 60.0
"""Seconds for which requests are retried after errors of the server or the network."""
_OWN = {
    **dict.fromkeys(("s3", "s3a"), "S3Store"),
    **dict.fromkeys(("gs",), "GCSStore"),
    **dict.fromkeys(("az", "azure", "adl", "abfs", "abfss"), "AzureStore"),
    **dict.fromkeys(("http", "https"), "HTTPStore"),
}
"""Schemes of obstore, with its store classes; all others go to fsspec."""
_CLOUDS = ("AWS_", "GOOGLE_", "AZURE_", "AZURITE_")
_SETTINGS = (*_CLOUDS, "HOME")
_stores: dict[tuple[object, ...], Store] = {}


def store(url: str) -> Store:
    """Return the store for a URL.

    There is one for each bucket, and a new one whenever the settings in the environment change.
    """
    scheme, _, rest = url.partition("://")
    kind = _OWN.get(scheme.lower())
    if kind is None:
        from .fsspec_store import FsspecStore

        return FsspecStore()
    root = f"{scheme}://{rest.partition('/')[0]}"
    settings = tuple(
        sorted((name, text) for name, text in os.environ.items() if name.startswith(_SETTINGS))
    )
    key = root, PATIENCE, settings
    cached = _stores.get(key)
    if cached is None:
        from .object_store import ObjectStore

        cached = _stores[key] = ObjectStore(kind, root, PATIENCE)
    return cached


_taken_over: set[str] = set()


def settings() -> dict[str, str]:
    """Return the environment variables that configure stores, for workers on other machines.

    They may contain credentials: send them as data, never in a command line, a log or a message.
    """
    return {name: text for name, text in os.environ.items() if name.startswith(_CLOUDS)}


def take_over(settings: dict[str, str]) -> None:
    """Put the settings of another process into this environment.

    They replace the settings of an earlier call. Other variables of this process stay.
    """
    for name in _taken_over - settings.keys():
        os.environ.pop(name, None)
    _taken_over.clear()
    _taken_over.update(settings)
    os.environ.update(settings)
