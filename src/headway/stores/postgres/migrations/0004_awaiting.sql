-- Awaiting jobs by arrival, so that a listing finds them among any number of other jobs.
CREATE INDEX job_awaiting ON job (seq) WHERE state = 4;
