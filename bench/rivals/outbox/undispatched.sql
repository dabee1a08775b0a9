-- Takes effect for the dispatcher, which is in this database.
ALTER DATABASE undispatched SET outbox.dispatch = off;
