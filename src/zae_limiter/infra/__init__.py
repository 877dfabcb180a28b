"""Deployment on AWS: a CloudFormation stack with the table and everything around it.

Read `options` (what can be chosen), then `template` (the stack as a value; its parts are
`table_resource`, `aggregator_resources`, `event_filter`, `alarms`, `iam_resources` and `outputs`).
`policies` has the permissions of every use of a stack, `deployer_policy` those of whoever deploys.
`sync_stack_manager` carries a template out through `change_sets` and `stack_events`, uploads the
zip of `lambda_builder` and writes the first records (`table_setup`); `stack_manager` does the same
for asyncio. `stack_reading` and `discovery` only look.
"""
