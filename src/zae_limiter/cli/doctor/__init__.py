"""`zae-limiter doctor` looks at everything that a limiter stands on, and says what to mend.

Read `command` first, which carries the checks out in order. A check is a function that returns a
`Finding`: `store_checks` has those of any store, `table_checks` those of a DynamoDB table, and
`reader_checks` those of the readers of its stream. Nothing is created or changed.
"""
