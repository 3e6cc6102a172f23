"""AWS configuration that obstore does not read by itself: profiles, and unencrypted endpoints."""

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
"""Sources of credentials that obstore reads by itself, and that come before profiles."""
_ENDPOINTS = {
    "S3Store": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "AzureStore": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}


def endpoint(kind: str) -> str | None:
    """Return the endpoint that the environment gives for a kind of store, or None."""
    return next(
        (os.environ[name] for name in _ENDPOINTS.get(kind, ()) if os.environ.get(name)), None
    )


def allows_http(kind: str, root: str, arguments: dict[str, Any]) -> bool:
    """Return whether unencrypted requests are allowed: only if the configured URL is http://."""
    if kind == "HTTPStore":
        return root.lower().startswith("http://")
    if kind == "AzureStore" and os.environ.get("AZURE_STORAGE_USE_EMULATOR", "").lower() == "true":
        return True
    return (arguments.get("endpoint") or endpoint(kind) or "").lower().startswith("http://")


def settings(kind: str) -> dict[str, Any]:
    """Return the arguments of an obstore store that it does not take from the environment."""
    if kind != "S3Store":
        return {}
    arguments: dict[str, Any] = {}
    if (url := os.environ.get("AWS_ENDPOINT_URL_S3")) is not None:
        arguments["endpoint"] = url
    if any(os.environ.get(name) for name in _OTHERS) or os.environ.get(
        "AWS_SKIP_SIGNATURE", ""
    ).lower() in ("true", "1"):
        return arguments
    return arguments | _profile()


def _profile() -> dict[str, Any]:
    """Return the settings of the selected profile in AWS's own files.

    Other kinds of profiles (SSO, roles) are left to boto3, if it is installed.
    """
    name = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default"
    keys = _section("AWS_SHARED_CREDENTIALS_FILE", "credentials", name)
    config = _section("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}")
    profile = {**config, **keys}
    arguments: dict[str, Any] = {}
    if profile.get("endpoint_url") and endpoint("S3Store") is None:
        arguments["endpoint"] = profile["endpoint_url"]
    if profile.get("region") and not (
        os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    ):
        arguments["region"] = profile["region"]
    if "aws_access_key_id" in profile and "aws_secret_access_key" in profile:
        arguments["access_key_id"], arguments["secret_access_key"] = (
            profile["aws_access_key_id"],
            profile["aws_secret_access_key"],
        )
        if "aws_session_token" in profile:
            arguments["session_token"] = profile["aws_session_token"]
    elif profile and importlib.util.find_spec("boto3") is not None:
        from obstore.auth.boto3 import Boto3CredentialProvider

        arguments["credential_provider"] = Boto3CredentialProvider()
    return arguments


def _section(variable: str, file: str, name: str) -> dict[str, str]:
    """Return one section of an AWS file; empty if the file is missing or cannot be read."""
    path = os.environ.get(variable) or os.path.join(os.path.expanduser("~"), ".aws", file)
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
        return dict(parser[name]) if name in parser else {}
    except (configparser.Error, OSError, UnicodeDecodeError):
        return {}
