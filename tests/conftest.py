"""What all tests share: how hard Hypothesis tries, what happens where a package is missing, and
TensorFlow and pyarrow as fixtures.
"""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from support.tiers import PURE, TIER, TORTURE, unmet
from tensorwire import MissingDependencyError

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_common = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("pure", max_examples=25, **_common)
settings.register_profile("check", max_examples=30, **_common)
settings.register_profile("test", max_examples=150, **_common)
settings.register_profile("torture", max_examples=2_000, **_common)
settings.load_profile(
    "torture" if TORTURE else "pure" if PURE else "check" if TIER == "check" else "test"
)

# Whoever starts us in the background of a shell has us ignore Ctrl-C, and so all that we start;
# some tests are about it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Ray stays on this machine, and tells nobody.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    if reason := unmet({mark.name for mark in item.iter_markers()}):
        (pytest.fail if TIER == "test" else pytest.skip)(reason)
    return (yield from _skipping())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    return (yield from _skipping())


def _skipping():
    """Skip a test that meets a missing package, by the package's name; not in `make test`."""
    try:
        return (yield)
    except (ModuleNotFoundError, MissingDependencyError) as error:
        if TIER == "test":
            raise
        pytest.skip(f"needs {getattr(error, 'name', None) or error}")


@pytest.fixture(scope="session")
def tf():
    import tensorflow

    return tensorflow


@pytest.fixture(scope="session")
def pa():
    import pyarrow

    return pyarrow


@pytest.fixture(scope="session")
def pq():
    import pyarrow.parquet

    return pyarrow.parquet
