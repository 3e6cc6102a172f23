"""Which store keeps the bytes behind a URL."""

from __future__ import annotations

import os

from .places import Store

PATIENCE = 60.0
"""Seconds for which requests that fail by a fault of the server or the network are tried again."""
_OWN = {
    **dict.fromkeys(("s3", "s3a"), "S3Store"),
    **dict.fromkeys(("gs",), "GCSStore"),
    **dict.fromkeys(("az", "azure", "adl", "abfs", "abfss"), "AzureStore"),
    **dict.fromkeys(("http", "https"), "HTTPStore"),
}
"""Schemes of obstore; all others are left to fsspec."""
_SETTINGS = ("AWS_", "GOOGLE_", "AZURE_", "AZURITE_", "HOME")
_stores: dict[tuple[object, ...], Store] = {}


def store(url: str) -> Store:
    """The store for a URL, made once for each bucket, and again when the environment's settings are others."""
    scheme, _, rest = url.partition("://")
    kind = _OWN.get(scheme.lower())
    if kind is None:
        from .others import OtherStore

        return OtherStore()
    root = f"{scheme}://{rest.partition('/')[0]}"
    settings = tuple(sorted((name, text) for name, text in os.environ.items() if name.startswith(_SETTINGS)))
    key = root, PATIENCE, settings
    found = _stores.get(key)
    if found is None:
        from .objects import ObjectStore

        found = _stores[key] = ObjectStore(kind, root, PATIENCE)
    return found
