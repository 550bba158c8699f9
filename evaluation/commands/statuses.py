"""Exit statuses of the command line.

0: done. 1: done, with a negative result (an archive that is not usable). 2: an error the user can correct.
130: interrupted by Ctrl-C. 143: ended by SIGTERM.
"""

DONE, USER_ERROR, INTERRUPTED, TERMINATED = 0, 2, 130, 143
