-- Two names of 512 characters each may be above what an entry of an index holds; one is not.
DROP INDEX event_scope;
CREATE INDEX event_scope ON event (scope);
