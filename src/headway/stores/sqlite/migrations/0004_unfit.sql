DROP INDEX job_unfit;
CREATE INDEX job_unfit ON job (parked_at, ticket_amount) WHERE state = 2 AND unfit = 1;
