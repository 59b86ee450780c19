"""The table of jobs, on PostgreSQL."""

from __future__ import annotations

from headway.stores.postgres.tables.jobs.due import JobTiming
from headway.stores.postgres.tables.jobs.flows import JobFlows
from headway.stores.postgres.tables.jobs.listing import JobListing
from headway.stores.postgres.tables.jobs.parking import JobParking


class PostgresJobs(JobFlows, JobTiming, JobParking, JobListing):
    """See `JobTable`: each part in its own file."""
