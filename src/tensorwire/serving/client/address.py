"""Where a model is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from ..._errors import EncodeError, choices

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
    """A model at a server, in one of its versions, or behind a label, or the newest that there is.

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
        """From a server's URL and the model's name, or from the model's own URL.

        >>> print(Address.of("http://127.0.0.1:8501/v1/models/ranker/versions/3:predict"))
        'ranker' version 3 at http://127.0.0.1:8501
        """
        if model is None and isinstance(url, str):
            said = _said(url)
            url, model, protocol = said["url"], said["model"], protocol or said["protocol"]
            version, label = (
                (said["version"], said["label"])
                if version is None and label is None
                else (version, label)
            )
        try:
            scheme = urlsplit(url).scheme if isinstance(url, str) else ""
        except ValueError as error:
            raise EncodeError(f"{url!r:.100} is not a URL: {error}") from None
        if scheme not in SCHEMES:
            raise EncodeError(
                f"the server's address {url!r:.100} is no URL that begins with"
                f" {', '.join(f'{each}://' for each in SCHEMES)}"
            )
        protocol = "tensorflow" if protocol is None else protocol
        if protocol not in PROTOCOLS:
            raise EncodeError(f"no protocol {protocol!r}{choices(protocol, PROTOCOLS)}")
        if protocol == "kserve" and scheme.startswith("grpc"):
            raise EncodeError('protocol="kserve" goes by HTTP: Client("http://...")')
        if not isinstance(model, str) or not model:
            raise EncodeError(f"a model's name is text, not {model!r:.60}; pass model=")
        for text in (model, label, version):
            if isinstance(text, str) and not is_utf8(text):
                raise EncodeError(
                    f"{text!r:.60} has a lone surrogate, so it is not text that UTF-8 can hold"
                )
        if version is not None and label is not None:
            raise EncodeError(
                f"version={version} and label={label!r} at once; a label stands for a version"
            )
        if version is not None and not _is_version(version, protocol):
            what = "text or a number" if protocol == "kserve" else "a number"
            raise EncodeError(f"a version is {what}, not {version!r:.60}")
        if label is not None and (not isinstance(label, str) or not label or protocol == "kserve"):
            raise EncodeError(
                f"no label {label!r:.60}"
                if protocol == "tensorflow"
                else "KServe has versions and no labels"
            )
        return cls(url, model, version, label, protocol)

    @property
    def by_rpc(self) -> bool:
        return self.url.startswith("grpc")

    def path(self, api: str) -> str:
        """The path of the model, by REST; names are percent-encoded, whatever they hold."""
        where = f"/{api}/models/{quote(self.model, safe='')}"
        if self.version is not None:
            return f"{where}/versions/{quote(str(self.version), safe='')}"
        return f"{where}/labels/{quote(self.label, safe='')}" if self.label is not None else where

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
    if isinstance(version, str):
        return protocol == "kserve" and bool(version)
    return isinstance(version, int) and not isinstance(version, bool) and 0 <= version < 1 << 63


def is_utf8(text: str) -> bool:
    """
    >>> is_utf8("model"), is_utf8("model\\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def verb_of(url: str) -> str | None:
    """What a model's own URL asks for, if it says so.

    >>> verb_of("http://127.0.0.1:8501/v1/models/ranker:classify")
    'classify'
    """
    found = _MODEL.fullmatch(url)
    return found["verb"] if found else None


def _said(url: str) -> dict[str, Any]:
    """What a model's own URL says; of a server's alone that it says no model."""
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
    found = _MODEL.fullmatch(url)
    if (
        found is not None
        and found["version"]
        and found["api"] == "v1"
        and not _NUMBER.fullmatch(found["version"])
    ):
        found = None
    if found is None:
        return {"url": url, "model": None, "version": None, "label": None, "protocol": None}
    version: int | str | None = unquote(found["version"]) if found["version"] else None
    if version is not None and _NUMBER.fullmatch(str(version)):
        version = int(version)
    label = unquote(found["label"]) if found["label"] else None
    return {
        "url": found["base"],
        "model": unquote(found["model"]),
        "version": version,
        "label": label,
        "protocol": _APIS[found["api"]],
    }
