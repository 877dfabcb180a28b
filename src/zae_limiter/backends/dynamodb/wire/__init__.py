"""A thin wire to DynamoDB.

values, signer, protocol, errors, retry: pure functions. aiohttp_edge and urllib3_edge carry
bytes. transport signs, sends and reads; client adds retries and a meter. botocore_transport
and aiobotocore_transport take the place of transport for those who want botocore.
"""
