"""The address of a model: server URL, name, version or label, and protocol."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from ..._errors import UsageError, choices

SCHEMES = ("http", "https", "grpc", "grpcs")
PROTOCOLS = ("tensorflow", "kserve")
VERBS = ("predict", "classify", "regress")
_MODEL = re.compile(
    r"(?P<base>.*?)/(?P<api>v1|v2)/models/(?P<model>[^/:]+)(?:/versions/(?P<version>[^/:]+)|/labels/(?P<label>[^/:]+))?"
    r"(?::(?P<verb>predict|classify|regress)|/(?:infer|metadata|ready))?/?"
)
_NUMBER = re.compile(r"0|[1-9]\d{0,17}", re.A)
_APIS = {"v1": "tensorflow", "v2": "kserve"}


@dataclass(frozen=True)
class Address:
    """A model on a server: one version, the version of a label, or the latest version.

    >>> Address.of("http://127.0.0.1:8501", "ranker", version=3).path("v1")
    '/v1/models/ranker/versions/3'
    """

    url: str
    model: str
    version: int | str | None = None
    """A number; KServe's versions are text."""
    label: str | None = None
    protocol: str = "tensorflow"

    @classmethod
    def of(
        cls,
        url: str,
        model: str | None = None,
        version: int | str | None = None,
        label: str | None = None,
        protocol: str | None = None,
    ) -> Address:
        """Return the address for a server URL and a model name, or for the model's own URL.

        >>> print(Address.of("http://127.0.0.1:8501/v1/models/ranker/versions/3:predict"))
        'ranker' version 3 at http://127.0.0.1:8501
        """
        if model is None and isinstance(url, str):
            parts = _split(url)
            url, model, protocol = parts["url"], parts["model"], protocol or parts["protocol"]
            version, label = (
                (parts["version"], parts["label"])
                if version is None and label is None
                else (version, label)
            )
        try:
            scheme = urlsplit(url).scheme if isinstance(url, str) else ""
        except ValueError as error:
            raise UsageError(f"{url!r:.100} is not a URL: {error}") from None
        if scheme not in SCHEMES:
            raise UsageError(
                f"invalid server URL {url!r:.100}: expected one that begins with"
                f" {', '.join(f'{name}://' for name in SCHEMES)}"
            )
        protocol = "tensorflow" if protocol is None else protocol
        if protocol not in PROTOCOLS:
            raise UsageError(f"unknown protocol {protocol!r}{choices(protocol, PROTOCOLS)}")
        if protocol == "kserve" and scheme.startswith("grpc"):
            raise UsageError(
                'protocol="kserve" is only supported over HTTP', hint='use Client("http://...")'
            )
        if not isinstance(model, str) or not model:
            raise UsageError(f"expected the name of a model, got {model!r:.60}", hint="pass model=")
        for text in (model, label, version):
            if isinstance(text, str) and not is_utf8(text):
                raise UsageError(
                    f"{text!r:.60} contains a lone surrogate, which UTF-8 cannot encode"
                )
        if version is not None and label is not None:
            raise UsageError(
                f"version={version} and label={label!r} exclude each other: a label selects a"
                " version"
            )
        if version is not None and not _is_version(version, protocol):
            expected = "a number or text" if protocol == "kserve" else "a number"
            raise UsageError(f"version= expects {expected}, got {version!r:.60}")
        if label is not None and (not isinstance(label, str) or not label or protocol == "kserve"):
            raise UsageError(
                f"label= expects text, got {label!r:.60}"
                if protocol == "tensorflow"
                else "KServe has no labels, only versions"
            )
        return cls(url, model, version, label, protocol)

    @property
    def by_rpc(self) -> bool:
        """Whether the server is called by gRPC."""
        return self.url.startswith("grpc")

    def path(self, api: str) -> str:
        """Return the path of the model for REST; names are percent-encoded."""
        path = f"/{api}/models/{quote(self.model, safe='')}"
        if self.version is not None:
            return f"{path}/versions/{quote(str(self.version), safe='')}"
        return f"{path}/labels/{quote(self.label, safe='')}" if self.label is not None else path

    def __str__(self) -> str:
        which = (
            f" version {self.version}"
            if self.version is not None
            else f" label {self.label!r}"
            if self.label is not None
            else ""
        )
        return f"{self.model!r}{which} at {self.url}"


def _is_version(version: object, protocol: str) -> bool:
    """Return whether a value is a valid version in a protocol."""
    if isinstance(version, str):
        return protocol == "kserve" and bool(version)
    return isinstance(version, int) and not isinstance(version, bool) and 0 <= version < 1 << 63


def is_utf8(text: str) -> bool:
    """Return whether UTF-8 can encode a text: it cannot encode lone surrogates.

    >>> is_utf8("model"), is_utf8("model\\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def verb_of(url: str) -> str | None:
    """Return the verb of a model's URL, or None if it has none.

    >>> verb_of("http://127.0.0.1:8501/v1/models/ranker:classify")
    'classify'
    """
    match = _MODEL.fullmatch(url)
    return match["verb"] if match else None


def _split(url: str) -> dict[str, Any]:
    """Split a model's URL into the arguments of an Address; for a server URL the model is None."""
    scheme, _, rest = url.partition("://")
    if scheme.startswith("grpc") and rest.count("/") == 1:
        server, _, model = rest.partition("/")
        return {
            "url": f"{scheme}://{server}",
            "model": unquote(model) or None,
            "version": None,
            "label": None,
            "protocol": None,
        }
    match = _MODEL.fullmatch(url)
    if (
        match is not None
        and match["version"]
        and match["api"] == "v1"
        and not _NUMBER.fullmatch(match["version"])
    ):
        match = None
    if match is None:
        return {"url": url, "model": None, "version": None, "label": None, "protocol": None}
    version: int | str | None = unquote(match["version"]) if match["version"] else None
    if version is not None and _NUMBER.fullmatch(str(version)):
        version = int(version)
    label = unquote(match["label"]) if match["label"] else None
    return {
        "url": match["base"],
        "model": unquote(match["model"]),
        "version": version,
        "label": label,
        "protocol": _APIS[match["api"]],
    }
