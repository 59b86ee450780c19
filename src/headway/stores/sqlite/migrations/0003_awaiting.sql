CREATE INDEX job_awaiting ON job (state) WHERE state = 4;
