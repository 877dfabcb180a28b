"""A thin wire to DynamoDB.

values, signer, protocol, http1, errors, retry: pure functions. socket_edge and stream_edge carry
bytes, urllib3_edge and aiohttp_edge where there is a proxy. transport signs, sends and reads;
client adds retries and a meter. botocore_transport and aiobotocore_transport take the place of
transport for those who want botocore.
"""
