-- Unfit jobs by the amount that they need, so that those that fit a raised capacity are found first.
DROP INDEX job_unfit;
CREATE INDEX job_unfit ON job (parked_at, ticket_amount, seq) WHERE state = 2 AND unfit;
