"""Every line of a log is accounted for: *lines in = kept + quarantined + superseded + blank + comments*.

The sum is proved in two halves. `LineTally` compares what a format passed on with the numbers of its files' lines, and
the archive's writer compares what it filed with what it took. Rows that stand for no line (a pool that a header
describes) are counted on both sides.
"""

from dataclasses import dataclass, fields

from logs_schema.archive import Archive
from logs_schema.errors import FormatError
from logs_schema.formats.reading import Chunk, Item, Lines


@dataclass(frozen=True)
class LineSum:
    """What became of every line of an import: `read + derived` is the sum of the rest.

    Attributes:
        read: Lines of all files (rows, of Parquet files).
        derived: Rows that stand for no line of their own: nodes that a header or an inventory describes, samples
            gathered from several lines or files.
        kept: Rows in the archive.
        quarantined: Rows in its quarantine.
        superseded: Rows that gave way to another row of their key.
        blank: Lines with nothing on them.
        comments: Comments, headers, lines that describe machines, and lines that derived rows are made of.
    """

    read: int
    derived: int
    kept: int
    quarantined: int
    superseded: int
    blank: int
    comments: int

    def __str__(self) -> str:
        derived = f" + {self.derived:,} made of headers, inventories or several lines" if self.derived else ""
        comments = "comments, headers and lines of such rows" if self.derived else "comments and headers"
        return (
            f"{self.read:,} lines{derived} = {self.kept:,} kept + {self.quarantined:,} quarantined + "
            f"{self.superseded:,} superseded + {self.blank:,} blank + {self.comments:,} {comments}"
        )


@dataclass
class LineTally:
    """What a format has passed on so far, in lines and rows."""

    num_lines: int = 0
    num_blank: int = 0
    num_comments: int = 0
    num_rows: int = 0
    num_derived: int = 0

    def add(self, item: Item) -> None:
        """Counts one item."""
        if isinstance(item, Lines):
            self.num_lines += item.num_lines
            self.num_blank += item.num_blank
            self.num_comments += item.num_comments
        elif isinstance(item, Chunk) and item.derived:
            self.num_derived += item.rows.num_rows
        else:
            self.num_rows += item.rows.num_rows if isinstance(item, Chunk) else 1

    def include(self, other: "LineTally") -> None:
        """Adds the counts of another part of the log."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    def refuse_loss(self, where: str) -> None:
        """FormatError unless every line is a row, blank or a comment; to be called when all is read."""
        if self.num_lines != self.num_rows + self.num_blank + self.num_comments:
            raise FormatError(
                f"of {self.num_lines:,} lines, {self.num_rows:,} became rows, {self.num_blank:,} are blank and "
                f"{self.num_comments:,} comments or headers: the sum is not right, so nothing was written",
                where=where,
                advice="report this: it is a fault of the program, not of the log",
            )

    def closed(self, archive: Archive) -> LineSum:
        """The whole sum, with what the archive kept of the rows."""
        return LineSum(
            read=self.num_lines,
            derived=self.num_derived,
            kept=sum(archive.num_rows(name) for name in archive.tables),
            quarantined=sum(sum(archive.quarantined(name).values()) for name in archive.tables),
            superseded=sum(sum(archive.superseded(name).values()) for name in archive.tables),
            blank=self.num_blank,
            comments=self.num_comments,
        )
