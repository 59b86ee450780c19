-- Jobs that await a signal, by arrival: a listing finds them among any number of others.
CREATE INDEX job_awaiting ON job (seq) WHERE state = 4;
