"""Administration: everything that is stored, apart from acquiring.

One module for each kind of record: `limits`, `entities`, `namespaces`, `audit`, `usage`; `capacity`
answers questions about balances, `deployment` about the table and its versions.
"""
