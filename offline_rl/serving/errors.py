"""Errors of the server: of its callers, and of its start."""

from logs_schema.errors import SchedtwinError


class QueryError(SchedtwinError):
    """A call's content cannot be understood; it is answered with status 400, or in the `Error` field."""


class ServingError(SchedtwinError):
    """The server cannot be started with these options."""


class BadCallError(Exception):
    """A call that is answered with an error status before its content is read."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        super().__init__(message)
