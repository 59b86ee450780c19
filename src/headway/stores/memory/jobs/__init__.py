"""The table of jobs, in memory."""

from __future__ import annotations

from headway.stores.memory.jobs.due import JobTiming
from headway.stores.memory.jobs.flows import JobFlows
from headway.stores.memory.jobs.listing import JobListing
from headway.stores.memory.jobs.parking import JobParking


class MemoryJobs(JobFlows, JobTiming, JobParking, JobListing):
    """See `JobTable`; each part is in its own file."""
