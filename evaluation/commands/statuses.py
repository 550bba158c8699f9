"""Exit statuses of the command line.

0: done. 1: done, and the answer is no (an archive that is not usable). 2: an error the user can mend.
130: interrupted.
"""

DONE, USER_ERROR, INTERRUPTED = 0, 2, 130
