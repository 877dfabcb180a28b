"""Other limiters. Each adapter does with public functions what comes nearest to one acquire of
several limits: one call for each limit."""
