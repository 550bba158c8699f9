"""Log files that a rotation copies and cuts off while they are open."""

import os

import pytest

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
