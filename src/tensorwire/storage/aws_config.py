"""The settings of a store that obstore does not find by itself: AWS profiles, and endpoints that
are not encrypted.
"""

from __future__ import annotations

import configparser
import importlib.util
import os
from typing import Any

_OTHERS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Ways of the standard chain that come before profiles, or that obstore goes by itself."""
_ENDPOINTS = {
    "S3Store": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "AzureStore": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}


def endpoint(kind: str) -> str | None:
    """The address that the environment gives for a kind of store."""
    return next(
        (os.environ[name] for name in _ENDPOINTS.get(kind, ()) if os.environ.get(name)), None
    )


def allows_http(kind: str, root: str, said: dict[str, Any]) -> bool:
    """Whether requests may go unencrypted: only to an address that was given so."""
    if kind == "HTTPStore":
        return root.lower().startswith("http://")
    if kind == "AzureStore" and os.environ.get("AZURE_STORAGE_USE_EMULATOR", "").lower() == "true":
        return True
    return (said.get("endpoint") or endpoint(kind) or "").lower().startswith("http://")


def settings(kind: str) -> dict[str, Any]:
    """Arguments of a store that the environment alone does not give."""
    if kind != "S3Store":
        return {}
    said: dict[str, Any] = {}
    if (where := os.environ.get("AWS_ENDPOINT_URL_S3")) is not None:
        said["endpoint"] = where
    if any(os.environ.get(name) for name in _OTHERS) or os.environ.get(
        "AWS_SKIP_SIGNATURE", ""
    ).lower() in ("true", "1"):
        return said
    return said | _profile()


def _profile() -> dict[str, Any]:
    """The keys of the profile in AWS's own files; boto3, where it is installed, knows the other
    kinds of profiles (SSO, roles).
    """
    name = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default"
    keys = _section("AWS_SHARED_CREDENTIALS_FILE", "credentials", name)
    more = _section("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}")
    both = {**more, **keys}
    said: dict[str, Any] = {}
    if both.get("endpoint_url") and endpoint("S3Store") is None:
        said["endpoint"] = both["endpoint_url"]
    if both.get("region") and not (
        os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    ):
        said["region"] = both["region"]
    if "aws_access_key_id" in both and "aws_secret_access_key" in both:
        said["access_key_id"], said["secret_access_key"] = (
            both["aws_access_key_id"],
            both["aws_secret_access_key"],
        )
        if "aws_session_token" in both:
            said["session_token"] = both["aws_session_token"]
    elif both and importlib.util.find_spec("boto3") is not None:
        from obstore.auth.boto3 import Boto3CredentialProvider

        said["credential_provider"] = Boto3CredentialProvider()
    return said


def _section(variable: str, file: str, name: str) -> dict[str, str]:
    place = os.environ.get(variable) or os.path.join(os.path.expanduser("~"), ".aws", file)
    parser = configparser.RawConfigParser()
    try:
        parser.read(place, encoding="utf-8")
        return dict(parser[name]) if name in parser else {}
    except (configparser.Error, OSError, UnicodeDecodeError):
        return {}
