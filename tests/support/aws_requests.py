"""What IAM sees of requests to CloudFormation, DynamoDB, Lambda and S3, as boto3 sends them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.iam import IamRequest, dynamodb_requests
from tests.support.servers.chaos import Request
from zae_limiter.infra.arns import StackArns

_SCOPE = re.compile(r"Credential=[^/]+/\d+/[^/]+/([^/]+)/aws4_request")
_LAMBDA = [
    (r"GET /2015-03-31/functions/([^/]+)/configuration", "GetFunctionConfiguration"),
    (r"PUT /2015-03-31/functions/([^/]+)/code", "UpdateFunctionCode"),
    (r"POST /2017-03-31/tags/.+:function:([^/]+)", "TagResource"),
    (r"GET /2015-03-31/event-source-mappings()/?", "ListEventSourceMappings"),
]


def iam_requests(request: Request, arns: StackArns) -> Iterator[IamRequest]:
    """Yield the actions that one request needs."""
    found = _SCOPE.search(request.headers.get("authorization", ""))
    assert found, f"{request.method} {request.path} is not signed"
    service = found[1]
    if service == "cloudformation":
        yield _cloudformation(request, arns)
    elif service == "dynamodb":
        body = json.loads(request.body)
        yield from dynamodb_requests(request.operation, body, arns.places.table)
    elif service == "lambda":
        yield _lambda(request, arns)
    else:
        assert service == "s3", f"{service} is not known here"
        yield from _s3(request)


def _cloudformation(request: Request, arns: StackArns) -> IamRequest:
    fields = parse_qs(request.body.decode())
    (action,) = fields["Action"]
    is_list = action in ("DescribeStacks", "ListStacks") and "StackName" not in fields
    stack = arns.regional("cloudformation", f"stack/{arns.stack_name}/some-id")
    return IamRequest(f"cloudformation:{action}", "*" if is_list else stack)


def _lambda(request: Request, arns: StackArns) -> IamRequest:
    said = f"{request.method} {unquote(urlsplit(request.path).path)}"
    for pattern, action in _LAMBDA:
        found = re.fullmatch(pattern, said)
        if found:
            place = arns.regional("lambda", f"function:{found[1]}") if found[1] else "*"
            return IamRequest(f"lambda:{action}", place)
    raise AssertionError(f"{said} is not known here")


def _s3(request: Request) -> Iterator[IamRequest]:
    parts = urlsplit(request.path)
    bucket = f"arn:aws:s3:::{parts.path.strip('/')}"
    assert "/" not in parts.path.strip("/"), request.path
    if request.method == "GET" and "versions" in parts.query:
        yield IamRequest("s3:ListBucketVersions", bucket)
    elif request.method == "POST" and "delete" in parts.query:
        for key in re.findall(r"<Key>(.*?)</Key>", request.body.decode()):
            yield IamRequest("s3:DeleteObject", f"{bucket}/{key}")
            yield IamRequest("s3:DeleteObjectVersion", f"{bucket}/{key}")
    else:
        assert request.method == "DELETE", f"{request.method} {request.path} is not known here"
        yield IamRequest("s3:DeleteBucket", bucket)
