"""The errors that the package exports."""

import logs_schema


def test_errors_share_one_root() -> None:
    errors = [getattr(logs_schema, name) for name in logs_schema.__all__ if name.endswith("Error")]
    assert len(errors) == 6
    assert all(issubclass(error, logs_schema.SchedtwinError) for error in errors)
