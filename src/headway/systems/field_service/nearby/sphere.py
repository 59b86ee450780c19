"""Distances on the earth, taken as a sphere."""

from __future__ import annotations

from math import asin, atan2, cos, pi, radians, sin, sqrt

from headway.core.errors import InvalidValue

EARTH_KM = 6371.0088
"""The mean radius of the earth.

Source: IUGG, mean radius R1 of the GRS 80 ellipsoid.
"""
FARTHEST_KM = pi * EARTH_KM
"""Half around the earth: nothing is farther."""
DIGITS = 7
"""Of a position in degrees, after the point: about a centimetre."""


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


def least_km(lat: float, lon: float, box: tuple[float, float, float, float]) -> float:
    """How far a position is from the nearest point of a box.

    Args:
        lat: of the position.
        lon: of the position.
        box: south, west, north, east; west is not above east.

    Returns:
        Kilometres; 0 within it.
    """
    south, west, north, east = box
    if west <= lon <= east:
        # Two parallels are as far from each other as their latitudes.
        return EARTH_KM * radians(max(south - lat, lat - north, 0.0))
    # Within a parallel, distance grows with the difference of longitudes: an edge is nearest.
    edge = west if _apart(lon, west) <= _apart(lon, east) else east
    nearest = min(distance_km(lat, lon, south, edge), distance_km(lat, lon, north, edge))
    foot = _foot(lat, _apart(lon, edge))
    if south < foot < north:
        nearest = min(nearest, distance_km(lat, lon, foot, edge))
    return nearest


def most_km(lat: float, lon: float, box: tuple[float, float, float, float]) -> float:
    """How far a position is from the farthest point of a box, in kilometres."""
    # What is farthest from here is nearest to the other side of the earth.
    return FARTHEST_KM - least_km(-lat, lon - 180 if lon >= 0 else lon + 180, box)


def _apart(lon: float, other: float) -> float:
    """Degrees between two longitudes, 0 to 180."""
    degrees = abs(lon - other) % 360
    return min(degrees, 360 - degrees)


def _foot(lat: float, apart: float) -> float:
    """The latitude at which a meridian, so many degrees away, is nearest; outside of it if none."""
    up, away = radians(lat), radians(apart)
    return atan2(sin(up), cos(up) * cos(away)) * 180 / pi
