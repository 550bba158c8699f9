"""Exit statuses of the command line.

0: done. 1: done, with a negative result (an archive that is not usable). 2: an error the user can correct.
130: interrupted by Ctrl-C. 143: ended by SIGTERM. `certify` and `run` also end with 3 (the certificate failed) or 4 (it
cannot tell), `refresh` with 10 to 12, `fleet` with 13, as their --help says.
"""

DONE, USER_ERROR, INTERRUPTED, TERMINATED = 0, 2, 130, 143
