CREATE TABLE token (
    id text COLLATE "C" PRIMARY KEY,
    spec bytea NOT NULL,
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    used_at bigint
) WITH (fillfactor = 50);
