"""Log files on disks of all kinds: cut off by a rotation while they are open, or where nothing can be locked."""

import errno
import os

import pytest

from offline_rl.serving import journal as journal_module
from offline_rl.serving.journal import Journal
from tests.serving.test_decision_log import lines_of


@pytest.mark.parametrize("left", [0, 5, 10])
def test_rows_after_a_file_was_cut_off_stand_under_a_header_of_their_own(tmp_path, left):
    journal = Journal(tmp_path, "requests", ("a", "b"))
    journal.write([["1", "2"], ["3", "4"]])
    (path,) = tmp_path.glob("*.csv")
    os.truncate(path, left)
    journal.write([["5", "6"]])
    journal.write([["7", "8"]])
    journal.close()
    Journal(tmp_path, "requests", ("a", "b"))  # mends what is left of the other file
    assert sorted(lines_of(tmp_path)) == [*(["1,2"] if left > 7 else []), "5,6", "7,8"]


def test_a_disk_without_locks_is_an_error_that_leaves_nothing_behind(tmp_path, monkeypatch):
    journal = Journal(tmp_path, "requests", ("a",))

    def flock(_descriptor: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(journal_module.fcntl, "flock", flock)
        with pytest.raises(OSError, match="No locks available"):
            journal.write([["1"]])
    assert list(tmp_path.iterdir()) == []
    journal.write([["1"]])
    journal.close()
    assert lines_of(tmp_path) == ["1"]
