"""Exit statuses of the command line.

0: done. 1: done, with a negative result (an archive that is not usable). 2: an error the user can correct.
130: interrupted.
"""

DONE, USER_ERROR, INTERRUPTED = 0, 2, 130
