"""Group commit: writes of one process that meet at a bucket item go together.

`queue` keeps one write under way for each item and picks the leader of the next batch; `batch`
carries out a load alone or a whole batch; `charges` adds loads up and shares results out.
"""
