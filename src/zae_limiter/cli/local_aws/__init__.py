"""`zae-limiter local`: a local AWS, or a DynamoDB alone, in the background and without Docker.

Read `command` first (what is typed), then `programs` (the two servers, and how they are installed),
`process` (one server in the background, known by a file) and `environment` (what a program needs to
talk to it). Credentials are made up, and used for that endpoint alone.
"""
