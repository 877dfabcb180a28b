"""Deployment on AWS: a CloudFormation stack with the table and everything around it.

Read `options` (what can be chosen), then `template` (the stack as a value; its parts are
`table_resource`, `aggregator_resources`, `alarms`, `policies` and `iam_resources`). `stack_manager`
carries it out through `change_sets` and `stack_events`; `lambda_builder` makes the Lambda's zip,
`discovery` finds stacks, and `deployer_policy` is what whoever deploys must be allowed to do.
"""
