"""What the package exports is there, and is what it is said to be."""

import logs_schema


def test_everything_exported_exists_and_is_documented() -> None:
    assert sorted(logs_schema.__all__) == sorted(set(logs_schema.__all__))
    for name in logs_schema.__all__:
        exported = getattr(logs_schema, name)
        assert not callable(exported) or exported.__doc__


def test_errors_share_one_root() -> None:
    errors = [getattr(logs_schema, name) for name in logs_schema.__all__ if name.endswith("Error")]
    assert len(errors) == 6
    assert all(issubclass(error, logs_schema.SchedtwinError) for error in errors)
