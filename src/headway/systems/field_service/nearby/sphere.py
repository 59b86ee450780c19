"""Distances on the earth, taken as a sphere."""

from __future__ import annotations

from math import asin, cos, pi, radians, sin, sqrt

from headway.core.errors import InvalidValue
from headway.systems.field_service.nearby.cells import DIGITS

EARTH_KM = 6371.0088
"""The mean radius of the earth.

Source: IUGG, mean radius R1 of the GRS 80 ellipsoid.
"""
FARTHEST_KM = pi * EARTH_KM
"""Half around the earth: nothing is farther."""


def check_position(lat: float, lon: float) -> tuple[float, float]:
    """Lets a position pass.

    Args:
        lat: degrees north, -90 to 90.
        lon: degrees east, -180 to 180.

    Returns:
        It, to seven digits after the point; the longitude 180 is told as -180.

    Raises:
        InvalidValue: it is not on the earth.
    """
    if not -90 <= lat <= 90:
        message = f"the latitude {lat} is not on the earth"
        raise InvalidValue(message, hint="degrees north, from -90 to 90")
    if not -180 <= lon <= 180:
        message = f"the longitude {lon} is not on the earth"
        raise InvalidValue(message, hint="degrees east, from -180 to 180")
    east = round(lon, DIGITS)
    # Adding 0 makes the negative zero positive.
    return round(lat, DIGITS) + 0.0, -180.0 if east == 180 else east + 0.0


def distance_km(lat: float, lon: float, other_lat: float, other_lon: float) -> float:
    """How far two positions are from each other, by the shortest way.

    Args:
        lat: of one, degrees north.
        lon: of one, degrees east.
        other_lat: of the other.
        other_lon: of the other.

    Returns:
        Kilometres, by the haversine formula.
    """
    up = sin(radians(other_lat - lat) / 2)
    along = sin(radians(other_lon - lon) / 2)
    half = up * up + cos(radians(lat)) * cos(radians(other_lat)) * along * along
    return 2 * EARTH_KM * asin(sqrt(min(half, 1.0)))


def reach_km(lat: float, degrees: float) -> float:
    """How far the corners of a square are from its middle, at most.

    Args:
        lat: of the middle, degrees north.
        degrees: from the middle to a side, along the meridian and along the parallel.

    Returns:
        Kilometres.
    """
    half = sin(radians(min(degrees, 180.0)) / 2)
    # A parallel is nowhere longer than at the equator: one of the two cosines is taken as 1.
    return 2 * EARTH_KM * asin(min(half * sqrt(1 + cos(radians(lat))), 1.0))
