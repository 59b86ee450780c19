"""The table of jobs, on SQLite."""

from __future__ import annotations

from headway.stores.sqlite.tables.jobs.due import JobTiming
from headway.stores.sqlite.tables.jobs.flows import JobFlows
from headway.stores.sqlite.tables.jobs.listing import JobListing
from headway.stores.sqlite.tables.jobs.parking import JobParking


class SqliteJobs(JobFlows, JobTiming, JobParking, JobListing):
    """See `JobTable`; each part is in its own file."""
