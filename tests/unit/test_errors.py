import pickle

import pytest

import tensorwire as tw

ERRORS = [getattr(tw, name) for name in tw.__all__ if name.endswith("Error")]


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_pickles_with_its_facts(kind):
    error = (
        kind(404, "gone")
        if kind is tw.ModelError
        else kind("bad", path="a.bin", record=3, tensor="w", format="raw", offset=9)
    )
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind and str(back) == str(error) and vars(back) == vars(error)


def test_the_tree_is_the_one_in_the_docs():
    assert issubclass(tw.EncodeError, (tw.TensorwireError, ValueError)) and issubclass(
        tw.DecodeError, ValueError
    )
    assert all(
        issubclass(kind, tw.DecodeError)
        for kind in (tw.TruncatedError, tw.ChecksumError, tw.LimitError)
    )
    assert issubclass(tw.SchemaError, ValueError) and issubclass(tw.UnknownFormatError, LookupError)
    assert issubclass(tw.MissingDependencyError, ImportError)
    assert issubclass(tw.UsageError, ValueError) and issubclass(tw.UsageError, TypeError)
    assert issubclass(tw.DeadlineError, tw.TransportError) and issubclass(
        tw.DeadlineError, TimeoutError
    )
    assert issubclass(tw.TransportError, tw.ServingError) and issubclass(
        tw.ModelError, tw.ServingError
    )
    assert all(issubclass(kind, tw.TensorwireError) for kind in ERRORS) and len(ERRORS) == 14


def test_outer_layers_add_facts_and_never_overwrite():
    error = tw.DecodeError("bad", offset=5, tensor="w").add(path="f", tensor="other", base=100)
    assert (error.path, error.tensor, error.offset) == ("f", "w", 105)
    assert str(error) == "bad (path f, tensor w, byte 105)"
    assert tw.DecodeError("bad").add(base=7).offset is None
    error = tw.UsageError("bad", path="f", hint="do this")
    assert str(error) == "bad (path f); do this" and error.message == "bad"


def test_missing_dependency_has_the_pip_line():
    from tensorwire._optional import require

    with pytest.raises(tw.MissingDependencyError, match=r"pip install 'tensorwire\[arrow\]'"):
        require("no_such_package_here", extra="arrow")
