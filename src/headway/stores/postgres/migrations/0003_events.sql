-- Two names of 512 characters each may exceed the maximum size of an index entry; one does not.
DROP INDEX event_scope;
CREATE INDEX event_scope ON event (scope);
