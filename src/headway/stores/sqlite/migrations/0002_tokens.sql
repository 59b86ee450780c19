CREATE TABLE token (
    id TEXT PRIMARY KEY,
    spec BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    used_at INTEGER
) STRICT, WITHOUT ROWID;
