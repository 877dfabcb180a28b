"""The demo: several processes share one store, and their own logs show that the limits hold.

Read `command` first, then `performance` (the run). `scenario` says what is played, `crew` starts
the `worker` processes, each of which writes a `log`; `record` collects the logs, `check` judges
them by the window theorem, and `report` holds the outcome. `audience`, `view` and `screen` show all
of it.
"""
