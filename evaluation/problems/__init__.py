"""Problems: the kit of each, through which commands and jobs reach it."""
