"""The wire sends calls to DynamoDB and reads the answers, with little CPU time.

Read it from the outside in:

1. `connect` chooses the parts and returns a `DynamoClient`.
2. `client` makes one call: it retries where a retry does no harm, and counts requests (`meter`).
3. `transport` makes one exchange: it signs (`credentials`, `signer`), sends, and reads the answer
   (`protocol`, `values`, `errors`). `server_clock` learns the server's time from answers.
4. An edge carries bytes: `socket_edge` for threads, `stream_edge` for asyncio, each with a
   connection pool. `http1` reads answers, `proxy` opens tunnels; neither does any I/O.

`botocore_transport` and `aiobotocore_transport` replace step 3 for applications that patch or
trace botocore.
"""
