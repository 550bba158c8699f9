"""The errors that the package exports."""

import logs_schema


def test_errors_share_one_root() -> None:
    errors = [getattr(logs_schema, name) for name in logs_schema.__all__ if name.endswith("Error")]
    assert len(errors) == 6
    assert all(issubclass(error, logs_schema.SchedtwinError) for error in errors)


def test_an_error_in_brief_says_where_only_if_that_is_known():
    error = logs_schema.ConfigError("it is missing", where="log, table nodes", allowed="one", advice="add it")
    assert error.brief == "it is missing (log, table nodes)"
    assert logs_schema.ConfigError("it is missing").brief == "it is missing"
