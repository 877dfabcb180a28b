"""Real DynamoDB servers for tests, and a proxy that breaks their connections on purpose."""
