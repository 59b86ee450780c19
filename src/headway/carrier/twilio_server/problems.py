"""What Twilio answers to requests that it refuses.

Source: Twilio, "Twilio's response", "Error and warning dictionary".
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

_STATUS: Mapping[int, int] = {
    20003: 401,
    20404: 404,
    20405: 405,
    20429: 429,
    20500: 500,
    20503: 503,
}


class Refused(Exception):
    """A request is refused.

    Args:
        code: Twilio's.
        message: for people.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = _STATUS.get(code, 400)


async def refused(request: Request, error: Exception) -> Response:
    """The reply to a request that is refused."""
    if isinstance(error, HTTPException):
        error = _of_starlette(request, error)
    if not isinstance(error, Refused):
        error = Refused(20500, "Internal Server Error")
    headers: dict[str, str] = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="Twilio API"'
    if error.status == 429:
        headers["Retry-After"] = "1"
    body = {
        "code": error.code,
        "message": error.message,
        "more_info": f"https://www.twilio.com/docs/errors/{error.code}",
        "status": error.status,
    }
    return JSONResponse(body, error.status, headers)


def _of_starlette(request: Request, error: HTTPException) -> Refused:
    if error.status_code == 405:
        return Refused(20405, f"Method {request.method} not allowed")
    return Refused(20404, f"The requested resource {request.url.path} was not found")
